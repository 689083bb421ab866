"""Online features: rows of tables in a store that answers at once, and what was known of them at any time before."""

from sterna.pipelines.features.training import TrainingService, feature_service, training_set

__all__ = ("TrainingService", "feature_service", "training_set")
