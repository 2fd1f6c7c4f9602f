"""Scores of translations, significance of differences between systems, and the effect of each knob.

May import: text, files
"""
