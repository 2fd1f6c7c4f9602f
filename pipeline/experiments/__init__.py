"""Commands about results that exist, and about many trainings: compare, summary, verify, search, table3, track, clean.

May import: tracking, training
"""
