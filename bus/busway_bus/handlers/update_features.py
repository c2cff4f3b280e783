"""UpdateFeatures (key 57, versions 0-2): change the finalized levels of features (KIP-584, KIP-1022).

Versions: 1 has the type of an update and validation only, 2 no results for single features.
Behaviour: all updates are made or none; responds once they are durable and in force on this node. As in Kafka 4.3
version 0 only raises, and `metadata.version` is never lowered. Unserved features are refused by name, with the reason.
`share.version` goes up to Kafka 4.4's 2, and is not lowered from there while a group or a topic has dead-letter
settings (KIP-1191): the error lists them. With `eligible.leader.replicas.version` 1 (KIP-966), min.insync.replicas of
single brokers ends, and that of the cluster gets the controller's value.
*Not supported*: `kraft.version` and `streams.version` stay 0
"""

from busway_bus.controller.features import FeatureUpdate, UpdateFeatures
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.cluster import UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse

API = ApiKey.UPDATE_FEATURES
VERSIONS = (0, 2)
NEEDS = (Access(Operation.ALTER, Resource.CLUSTER),)
ONE_ANSWER_SINCE = 2


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    command = UpdateFeatures(
        updates=tuple(
            FeatureUpdate(name=update.feature, level=update.max_version_level, kind=update.upgrade_type)
            for update in request.feature_updates
        ),
        validate_only=request.validate_only,
    )
    try:
        await context.node.controller.request(command, context.for_controller)
    except KafkaError as problem:
        return UpdateFeaturesResponse(error_code=problem.code, error_message=problem.message)
    results: list[UpdatableFeatureResult] = []
    if context.api_version < ONE_ANSWER_SINCE:
        results = [
            UpdatableFeatureResult(feature=update.feature, error_code=ErrorCode.NONE, error_message="NONE")
            for update in request.feature_updates
        ]
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)
