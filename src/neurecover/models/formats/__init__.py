"""Networks to and from other libraries: PyTorch modules, ONNX files, scikit-learn's perceptrons."""
