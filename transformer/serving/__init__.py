"""The model as MLflow serves it, and the limits of one request.

May import: inference, model_folder, files
"""
