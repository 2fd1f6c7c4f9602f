"""A page, served to this machine only, that translates what is typed into it.

May import: results, tracking, workflow
"""
