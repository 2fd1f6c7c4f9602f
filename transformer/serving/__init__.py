"""The server of model folders, the model as MLflow serves it, and the limits of one request to either.

May import: inference, decoding, reporting, text, model_folder, cores, files, verdict
"""
