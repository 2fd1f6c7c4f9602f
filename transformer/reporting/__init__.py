"""Pages and charts for people, drawn from plain numbers.

May import: evaluation
"""
