"""A service's HTTP side: `pip install 'busway[web]'`.

Here: the public names; `import busway` does not load them.

    from busway.web import Web, application, json_response, read_json

    async def ride(request):
        return json_response(rides[request.path_params["ride_id"]])

    app.extend(Web(application([Route("/rides/{ride_id}", ride)]), port=8000))
"""

from busway.extras import need

need("web", "busway.web")

from busway.app.feed import Feed
from busway.app.monitoring.health import Health, Readiness
from busway.app.monitoring.metrics import Metrics
from busway.net.listening import CannotListen
from busway.web.bodies import MAX_BODY_BYTES, Refused, application, json_response, read_json, refusal
from busway.web.events import event_stream
from busway.web.extension import Web
from busway.web.rows import not_here, row_of
from busway.web.server import BadAddress, serving

__all__ = [
    "MAX_BODY_BYTES",
    "BadAddress",
    "CannotListen",
    "Feed",
    "Health",
    "Metrics",
    "Readiness",
    "Refused",
    "Web",
    "application",
    "event_stream",
    "json_response",
    "not_here",
    "read_json",
    "refusal",
    "row_of",
    "serving",
]
