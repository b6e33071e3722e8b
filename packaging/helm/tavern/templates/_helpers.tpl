{{- define "tavern.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tavern.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tavern.labels" -}}
{{ include "tavern.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tavern.secret" -}}
{{ .Values.secret.existing | default (include "tavern.name" .) }}
{{- end }}

{{- /* Whether the facts are in an external store: then the pods need no volume. */}}
{{- define "tavern.external" -}}
{{- if or .Values.secret.store .Values.config.store }}yes{{ end }}
{{- end }}

{{- /* A value as TOML. Numbers from YAML are floats; all numbers of Tavern are integers. */}}
{{- define "tavern.toml" -}}
{{- if kindIs "string" . }}{{ . | toJson }}
{{- else if kindIs "bool" . }}{{ . }}
{{- else if kindIs "slice" . }}{{ . | toJson }}
{{- else }}{{ . | int64 }}{{ end }}
{{- end }}
