{{/*
What a Pod may have, of a template and of the operator: one list for both, so that what is admitted as a template is
admitted as a Pod. Fields and volumes are allow-lists: those of a later Kubernetes are denied until they are known here.

The variables read variables.pods, a list of PodSpecs, which the policy defines before them. "more": further fields, each
after a comma.
*/}}
{{- define "closeknit.admitted.variables" -}}
- name: trusted
  expression: namespaceObject.metadata.?labels[?'closeknit.dev/unrestricted-templates'].orValue('') == 'true'
- name: containers
  expression: variables.pods.map(p, p.?containers.orValue([]) + p.?initContainers.orValue([]))
- name: podKeys
  expression: >-
    ['containers', 'initContainers', 'volumes', 'restartPolicy', 'terminationGracePeriodSeconds', 'imagePullSecrets',
    'securityContext', 'tolerations', 'nodeSelector', 'serviceAccountName', 'automountServiceAccountToken',
    'enableServiceLinks', 'dnsPolicy', 'dnsConfig', 'runtimeClassName', 'hostUsers', 'shareProcessNamespace',
    'activeDeadlineSeconds', 'affinity', 'resources'{{ .more }}]
- name: volumeKeys
  expression: >-
    ['name', 'emptyDir', 'configMap', 'secret', 'persistentVolumeClaim', 'projected', 'downwardAPI', 'ephemeral', 'image']
{{- end }}

{{/*
Call with (dict "whose" "the template" "title" "a TrainingJob template"), which the refusals name. "spared": a condition on
a field k of a PodSpec p, after an or, that takes it although the list does not have it.
*/}}
{{- define "closeknit.admitted.rules" -}}
{{- $lifted := "an administrator allows it by labelling the namespace closeknit.dev/unrestricted-templates=true" -}}
- reason: Forbidden
  message: {{ .whose }} sets a Pod field that is not allowed; {{ $lifted }}
  messageExpression: >-
    'not allowed in {{ .title }}: ' + variables.pods.map(p, p.filter(k, !(k in variables.podKeys{{ .spared | default "" }})).map(k,
    'spec.' + k).join(', ')).filter(names, names != '').join(', ') + '; {{ $lifted }}'
  expression: "variables.trusted || variables.pods.all(p, p.all(k, k in variables.podKeys{{ .spared | default "" }}))"
# What is required of nodes is read where nodes are chosen. What is asked of other Pods could keep theirs away.
- reason: Forbidden
  message: {{ .whose }} has an affinity that is not allowed; {{ $lifted }}
  messageExpression: >-
    'not allowed in {{ .title }}: ' + variables.pods.map(p, p.?affinity.orValue({}).filter(k,
    k != 'nodeAffinity').map(k, 'spec.affinity.' + k).join(', ')).filter(names, names != '').join(', ') + '; {{ $lifted }}'
  expression: variables.trusted || variables.pods.all(p, p.?affinity.orValue({}).all(k, k == 'nodeAffinity'))
- reason: Forbidden
  message: {{ .whose }} has a volume of a kind that is not allowed; {{ $lifted }}
  messageExpression: >-
    'not allowed in {{ .title }}: ' + variables.pods.map(p, p.?volumes.orValue([]).filter(v, !v.all(k, k in
    variables.volumeKeys)).map(v, 'volume ' + string(v.name) + ' (' + v.filter(k, !(k in variables.volumeKeys)).join(', ') +
    ')').join(', ')).filter(names, names != '').join(', ') + '; {{ $lifted }}'
  expression: variables.trusted || variables.pods.all(p, p.?volumes.orValue([]).all(v, v.all(k, k in variables.volumeKeys)))
- reason: Forbidden
  message: a container of {{ .whose }} is privileged, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, !c.?securityContext.?privileged.orValue(false)))
- reason: Forbidden
  message: a container of {{ .whose }} sets allowPrivilegeEscalation, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, !c.?securityContext.?allowPrivilegeEscalation.orValue(false)))
- reason: Forbidden
  message: a container of {{ .whose }} adds a capability other than IPC_LOCK, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, c.?securityContext.?capabilities.?add.orValue([]).all(x, x == 'IPC_LOCK')))
- reason: Forbidden
  message: a container of {{ .whose }} sets procMount, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, c.?securityContext.?procMount.orValue('Default') == 'Default'))
- reason: Forbidden
  message: a container of {{ .whose }} takes a port of the host, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, c.?ports.orValue([]).all(x, x.?hostPort.orValue(0) == 0)))
{{- end }}
