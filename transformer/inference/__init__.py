"""Lines of text to translations: the translator, and its two engines, PyTorch and CTranslate2.

May import: decoding, model, text, model_folder, cores, files
"""
