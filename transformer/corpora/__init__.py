"""Sources of parallel text: your files, checked downloads, the copy task, the built-in grammar (toy).

May import: text, files, credentials
"""
