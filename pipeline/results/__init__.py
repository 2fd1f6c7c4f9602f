"""Commands about results that exist: compare, summary, verify, table3, track, clean, ui.

May import: tracking, workflow
"""
