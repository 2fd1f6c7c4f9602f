"""Commands about results that exist: compare, summary, track, clean, ui, serve.

May import: tracking, workflow
"""
