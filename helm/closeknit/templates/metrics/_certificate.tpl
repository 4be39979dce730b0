{{/* Name of the Secret with the certificate that operator and agents serve with, or nothing where each makes its own. */}}
{{- define "closeknit.certificate" -}}
{{- $certificate := .Values.metrics.certificate }}
{{- if $certificate.certManager.enabled }}closeknit-metrics{{ else }}{{ $certificate.secretName | default "" }}{{ end }}
{{- end }}

{{- define "closeknit.certificate.argument" -}}
{{- if include "closeknit.certificate" . }}
- --metrics-certificate=/etc/closeknit/metrics-certificate
{{- end }}
{{- end }}

{{- define "closeknit.certificate.mount" -}}
{{- if include "closeknit.certificate" . }}
- {name: metrics-certificate, mountPath: /etc/closeknit/metrics-certificate, readOnly: true}
{{- end }}
{{- end }}

{{- define "closeknit.certificate.volume" -}}
{{- with include "closeknit.certificate" . }}
- {name: metrics-certificate, secret: {secretName: {{ . | quote }}}}
{{- end }}
{{- end }}
