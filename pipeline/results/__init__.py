"""Commands about results that exist: compare, summary, table3, track, clean, ui.

May import: tracking, workflow
"""
