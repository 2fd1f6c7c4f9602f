"""Sources of parallel text: files in a folder, and checked downloads.

May import: text, files, credentials
"""
