{{/*
What a Pod may have, of a template and of the operator: one list for both, so that what is admitted as a template is
admitted as a Pod. Fields and volumes are allow-lists: those of a later Kubernetes are denied until they are known here.

The variables read variables.pods, a list of PodSpecs, which the policy defines before them. "more": further fields, each
after a comma.

A field that is null is not set, as in a Pod: generators of manifests write many of those.
*/}}
{{- define "closeknit.admitted.variables" -}}
- name: trusted
  expression: namespaceObject.metadata.?labels[?'closeknit.dev/unrestricted-templates'].orValue('') == 'true'
- name: containers
  expression: >-
    (variables.pods.map(p, p.?containers.orValue(null)) + variables.pods.map(p, p.?initContainers.orValue(null))).filter(cs,
    cs != null)
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
    'not allowed in {{ .title }}: ' + variables.pods.map(p, p.filter(k, !(k in variables.podKeys || p[k] == null{{ .spared
    | default "" }})).map(k, 'spec.' + k).join(', ')).filter(names, names != '').join(', ') + '; {{ $lifted }}'
  expression: "variables.trusted || variables.pods.all(p, p.all(k, k in variables.podKeys || p[k] == null{{ .spared | default "" }}))"
# What is required of nodes is read where nodes are chosen. What is asked of other Pods could keep theirs away.
- reason: Forbidden
  message: {{ .whose }} has an affinity that is not allowed; {{ $lifted }}
  messageExpression: >-
    'not allowed in {{ .title }}: ' + variables.pods.filter(p, p.?affinity.orValue(null) != null).map(p,
    p.affinity.filter(k, k != 'nodeAffinity' && p.affinity[k] != null).map(k, 'spec.affinity.' + k).join(', ')).filter(names, names != '').join(', ') + '; {{ $lifted }}'
  expression: >-
    variables.trusted || variables.pods.all(p, p.?affinity.orValue(null) == null || p.affinity.all(k, k == 'nodeAffinity' ||
    p.affinity[k] == null))
- reason: Forbidden
  message: {{ .whose }} has a volume of a kind that is not allowed; {{ $lifted }}
  messageExpression: >-
    'not allowed in {{ .title }}: ' + variables.pods.filter(p, p.?volumes.orValue(null) != null).map(p,
    p.volumes.filter(v, !v.all(k, k in variables.volumeKeys || v[k] == null)).map(v, 'volume ' + string(v.name) + ' (' +
    v.filter(k, !(k in variables.volumeKeys || v[k] == null)).join(', ') + ')').join(', ')).filter(names, names != '').join(', ') + '; {{ $lifted }}'
  expression: >-
    variables.trusted || variables.pods.all(p, p.?volumes.orValue(null) == null || p.volumes.all(v, v.all(k,
    k in variables.volumeKeys || v[k] == null)))
- reason: Forbidden
  message: a container of {{ .whose }} is privileged, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, c.?securityContext.?privileged.orValue(false) in [dyn(false), dyn(null)]))
- reason: Forbidden
  message: a container of {{ .whose }} sets allowPrivilegeEscalation, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, c.?securityContext.?allowPrivilegeEscalation.orValue(false) in [dyn(false), dyn(null)]))
- reason: Forbidden
  message: a container of {{ .whose }} adds a capability other than IPC_LOCK, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, c.?securityContext.?capabilities.?add.orValue(null) == null ||
    c.securityContext.capabilities.add.all(x, x == 'IPC_LOCK')))
- reason: Forbidden
  message: a container of {{ .whose }} sets procMount, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, c.?securityContext.?procMount.orValue('Default') in [dyn('Default'), dyn(null)]))
- reason: Forbidden
  message: a container of {{ .whose }} takes a port of the host, which is not allowed; {{ $lifted }}
  expression: >-
    variables.trusted ||
    variables.containers.all(cs, cs.all(c, c.?ports.orValue(null) == null || c.ports.all(x,
    x.?hostPort.orValue(0) in [dyn(0), dyn(null)])))
{{- end }}
