"""A search for better knobs by many trainings, most of which are stopped early.

May import: workflow
"""
