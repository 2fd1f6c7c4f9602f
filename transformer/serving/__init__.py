"""The model as MLflow serves it, and the limits of one request.

May import: inference, decoding, model_folder, files
"""
