"""Scores of translations, and whether a difference between two systems is more than chance.

May import: text
"""
