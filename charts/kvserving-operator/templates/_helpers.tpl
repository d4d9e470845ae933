{{/* Name of the release's objects: the release's own. 52 leaves room for suffixes. */}}
{{- define "kvserving-operator.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of cluster-scoped objects: two releases in two namespaces never share one. */}}
{{- define "kvserving-operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "kvserving-operator.fullname" .) -}}
{{- end -}}

{{/* What selects the operator's pods; never changes for a release. */}}
{{- define "kvserving-operator.selectorLabels" -}}
app.kubernetes.io/name: kvserving-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kvserving-operator.labels" -}}
{{ include "kvserving-operator.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: kvserving
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "kvserving-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kvserving-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kvserving-operator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The operator's pods as the children's NetworkPolicies know them: key=value,… */}}
{{- define "kvserving-operator.podLabelPairs" -}}
app.kubernetes.io/name=kvserving-operator,app.kubernetes.io/instance={{ .Release.Name }}
{{- end -}}

{{- define "kvserving-operator.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "kvserving-operator.serviceAccountName" . }}
    namespace: {{ .Release.Namespace }}
{{- end -}}
