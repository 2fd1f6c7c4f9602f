"""Pages and charts made from plain numbers and lines of text.

May import: evaluation, files
"""
