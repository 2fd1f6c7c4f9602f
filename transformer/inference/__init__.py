"""Text in, translations out: the translator and the two engines it runs on.

May import: decoding, model, text, model_folder, cores, files
"""
