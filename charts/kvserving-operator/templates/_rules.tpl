{{- /* Generated from kube/permissions.py by `make generate`; do not edit. */ -}}

{{- define "kvserving-operator.rules.served" -}}
# the objects served; spec is never written
- apiGroups: ["kvserving.io"]
  resources: [kvservings]
  verbs: [get, list, watch]
# status is written by server-side apply
- apiGroups: ["kvserving.io"]
  resources: [kvservings/status]
  verbs: [patch]
# owner references with blockOwnerDeletion (OwnerReferencesPermissionEnforcement)
- apiGroups: ["kvserving.io"]
  resources: [kvservings/finalizers]
  verbs: [update]
# engines and the KV tier
- apiGroups: ["apps"]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# router
- apiGroups: ["apps"]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# names of pods, router front, metrics
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
# engine and KV tier configuration
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
# credentials of one KVServing, read by name only; no list, no watch, no delete
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
# identity of the router
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
# what the router may see
- apiGroups: ["rbac.authorization.k8s.io"]
  resources: [roles]
  verbs: [get, list, watch, create, patch, delete]
# what the router may see
- apiGroups: ["rbac.authorization.k8s.io"]
  resources: [rolebindings]
  verbs: [get, list, watch, create, patch, delete]
# who reaches engines and the KV tier
- apiGroups: ["networking.k8s.io"]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# voluntary disruptions one at a time
- apiGroups: ["policy"]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# TLS of the KV tier, where cert-manager is installed
- apiGroups: ["cert-manager.io"]
  resources: [certificates]
  verbs: [get, list, create, patch, delete]
# the way from a Gateway, where the Gateway API is installed
- apiGroups: ["gateway.networking.k8s.io"]
  resources: [httproutes]
  verbs: [get, list, create, patch, delete]
# scraping, where the Prometheus operator is installed
- apiGroups: ["monitoring.coreos.com"]
  resources: [podmonitors]
  verbs: [get, list, create, patch, delete]
# readiness and OnDelete replacement; the router's Role grants get, list, watch on
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
# one Event per object and reason, with a count
- apiGroups: [""]
  resources: [events]
  verbs: [get, create, patch]
{{- end -}}

{{- define "kvserving-operator.rules.own" -}}
# leader election
- apiGroups: ["coordination.k8s.io"]
  resources: [leases]
  verbs: [get, create, update]
{{- end -}}
