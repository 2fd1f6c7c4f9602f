"""Lines of text to words, subwords and ids, back again, and pairs of id sequences on disk.

May import: files, cores
"""
