"""Broken lines and hinge planes: y = α + β·x + Σⱼ δⱼ (wⱼ·x − ψⱼ)₊ + noise, with inference."""
