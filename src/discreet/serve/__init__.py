"""Deployment: an HTTP service, a self-contained web page, and exports for other systems.

`app` has the routes (`schemas`: request bodies, `model_registry`, `middleware`: limits, `metrics`,
`batching`), `server` runs it, and `workers` and `worker` run several processes. `web_page` writes
the page; `vectors`, `onnx_scorer` and `mlflow_model` export. All of them use the same `Scorer`.
"""

__all__ = [
    "app",
    "mlflow_model",
    "model_registry",
    "server",
    "vectors",
    "web_page",
]
