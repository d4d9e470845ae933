"""What kwok plays, as its Stage objects: nodes become Ready, pods run and end at once.

Only for scale: nothing runs in such a pod. kwok built from its module brings no stages of its own.
The texts are Go templates over the object, rendered by kwok into a status. Pure.
"""

from __future__ import annotations

import json
from typing import Any

READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'

NODE_STATUS = """\
{{ $now := Now }}
conditions:
- {type: Ready, status: "True", reason: Simulated, message: kwok plays this node,
   lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
addresses:
- {type: InternalIP, address: {{ NodeIP | Quote }}}
- {type: Hostname, address: {{ NodeName | Quote }}}
phase: Running
"""

POD_STATUS = """\
{{ $now := Now }}
{{ $address := index ( PodIPsWith .spec.nodeName ( or .spec.hostNetwork false )
   ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) ) 0 }}
phase: Running
startTime: {{ $now | Quote }}
podIP: {{ $address | Quote }}
podIPs: [{ip: {{ $address | Quote }}}]
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: true, started: true,
   restartCount: 0, state: {running: {startedAt: {{ $now | Quote }}}}}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
{{ if eq ( or .restartPolicy "" ) "Always" }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ else }}
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }},
    finishedAt: {{ $now | Quote }}}}
{{ end }}
{{ end }}
"""


def stages() -> str:
    """The configuration file: one JSON document a stage."""
    alive = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    going = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    unready = {"key": READY, "operator": "NotIn", "values": ["True"]}
    pending = {"key": ".status.phase", "operator": "In", "values": ["Pending"]}
    documents = [
        _stage("node-joins", "Node", [unready], {"statusTemplate": NODE_STATUS}),
        _stage("pod-runs", "Pod", [alive, pending, unready], {"statusTemplate": POD_STATUS}),
        _stage("pod-goes", "Pod", [going], {"finalizers": {"empty": True}, "delete": True}),
    ]
    return "\n---\n".join(json.dumps(document) for document in documents) + "\n"


def _stage(
    name: str, kind: str, when: list[dict[str, Any]], then: dict[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }
