"""Commands about results that exist: compare, summary, verify, track, ui, serve, clean; and about many trainings.

May import: tracking
"""
