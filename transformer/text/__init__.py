"""Lines of text, words, subwords and ids, and pairs of ids on disk.

May import: files
"""
