{{/* What a placeholder Pod has after the name of its job, as closeknit.cluster.capacity.placeholder makes it. */}}
{{- define "closeknit.placeholder.suffix" -}}
^-placeholder-[0-9a-f]{8}-[0-9]{1,4}-of-[0-9]{1,4}$
{{- end }}

{{/* Whether a request makes a placeholder Pod. */}}
{{- define "closeknit.placeholder.made" -}}
request.operation == 'CREATE' && request.resource.resource == 'pods' && request.?subResource.orValue('') == '' &&
'closeknit.dev/placeholder' in object.metadata.?labels.orValue({})
{{- end }}

{{/*
What the operator may make and delete, as the variables and validations of a policy: children of TrainingJobs. What a
template may have, a Pod may have: the lists of _admitted.tpl, and what launch and the API server's defaults add to them.
*/}}
{{- define "closeknit.children" -}}
variables:
  - name: isService
    expression: request.resource.resource == 'services'
  - name: isClaim
    expression: request.resource.resource == 'resourceclaims'
  - name: isNew
    expression: request.operation == 'CREATE'
  - name: it
    expression: "object != null ? object : oldObject"
  - name: owners
    expression: variables.it.metadata.?ownerReferences.orValue([])
  - name: jobs
    expression: variables.owners.filter(o, o.kind == 'TrainingJob' && o.apiVersion.startsWith('closeknit.dev/'))
  - name: labels
    expression: "variables.it.metadata.?labels.orValue({})"
  - name: annotations
    expression: "variables.it.metadata.?annotations.orValue({})"
  - name: job
    expression: variables.labels[?'closeknit.dev/job'].orValue('')
  - name: attempt
    expression: variables.labels[?'closeknit.dev/attempt'].orValue('')
  - name: role
    expression: variables.labels[?'closeknit.dev/role'].orValue('')
  - name: index
    expression: variables.labels[?'closeknit.dev/index'].orValue('')
  - name: marks
    expression: "variables.isService ? ['job', 'attempt'] : ['job', 'attempt', 'role', 'index']"
  - name: pods
    expression: "variables.isNew && request.resource.resource == 'pods' ? [object.spec] : []"
  {{- $more := ", 'hostname', 'subdomain', 'priorityClassName', 'resourceClaims', 'schedulerName', 'serviceAccount', 'priority', 'preemptionPolicy', 'overhead'" }}
  {{- include "closeknit.admitted.variables" (dict "more" $more) | nindent 2 }}
validations:
  # First, for what follows reads an object of these kinds.
  - reason: Forbidden
    message: >-
      the operator makes, stops and deletes its children, tells a gang its size, and changes nothing else of them; a claim goes with
      its Pod
    expression: >-
      request.?subResource.orValue('') == '' && (variables.isNew || (request.operation == 'DELETE' && !variables.isClaim))
  - reason: Forbidden
    message: >-
      the operator works neither in the namespaces of Kubernetes (kube-...) nor in its own; create the job in another one
    expression: "!request.namespace.startsWith('kube-') && request.namespace != '{{ .Release.Namespace }}'"
  - reason: Forbidden
    message: the operator makes only what one TrainingJob, or of a claim its Pod, owns as its controller
    expression: >-
      !variables.isNew || (variables.owners.size() == 1 && variables.owners.all(o, o.?controller.orValue(false) &&
      !o.?blockOwnerDeletion.orValue(false) && (variables.isClaim ? o.apiVersion == 'v1' && o.kind == 'Pod' && o.name ==
      variables.it.metadata.name : variables.jobs.size() == 1 && variables.job != '' && o.name == variables.job)))
  # As closeknit.api.names makes them.
  - reason: Forbidden
    message: the operator names its children by job, attempt, role and index, as their labels do
    expression: >-
      !variables.isNew || (variables.attempt.matches('^[1-9][0-9]*$') && (variables.isService ?
      variables.it.metadata.name == variables.job + '-a' + variables.attempt :
      variables.role in ['worker', 'ps'] && variables.index.matches('^(0|[1-9][0-9]{0,4})$') &&
      variables.it.metadata.name.startsWith(variables.job + '-a' + variables.attempt + '-' + variables.role + '-' +
      ('00000' + variables.index).substring(size(variables.index))) && variables.it.metadata.name.substring(
      size(variables.job + variables.attempt + variables.role) + 9).matches('^(-r[1-9][0-9]{0,2})?$')))
  - reason: Forbidden
    message: the operator sets no other label and annotation under closeknit.dev/ than those of a child
    expression: >-
      !variables.isNew || (variables.labels.all(k, !k.startsWith('closeknit.dev/') ||
      k.substring(size('closeknit.dev/')) in variables.marks) && variables.annotations.all(k,
      !k.startsWith('closeknit.dev/') || (k in ['closeknit.dev/gpus', 'closeknit.dev/settings', 'closeknit.dev/size'] && request.resource.resource == 'pods')))
  # With one a stolen token would keep Pods, and with them their namespace, past the end of what owns them.
  - reason: Forbidden
    message: the operator's children have no finalizers
    expression: "!variables.isNew || variables.it.metadata.?finalizers.orValue([]).size() == 0"
  # Labels may have been changed since, and are not asked.
  - reason: Forbidden
    message: the operator deletes only Pods and Services that a TrainingJob owns and that have the name of its child
    expression: >-
      variables.isNew || variables.jobs.exists(o, variables.it.metadata.name.startsWith(o.name) &&
      (variables.it.metadata.name.substring(size(o.name)).matches(variables.isService ? '^-a[0-9]+$' :
      '^-a[0-9]+-(worker|ps)-[0-9]{5}(-r[0-9]{1,3})?$') || (!variables.isService &&
      variables.it.metadata.name.substring(size(o.name)).matches('{{ include "closeknit.placeholder.suffix" . }}'))))
  - reason: Forbidden
    message: the operator's Services are headless, select the Pods of their attempt, and have nothing else
    expression: >-
      !variables.isService || !variables.isNew || (object.spec.?type.orValue('ClusterIP') == 'ClusterIP' &&
      object.spec.?clusterIP.orValue('') == 'None' && object.spec.?clusterIPs.orValue(['None']) == ['None'] &&
      !has(object.spec.externalIPs) && !has(object.spec.externalName) && !has(object.spec.ports) &&
      object.spec.?selector.orValue({}) == {'closeknit.dev/job': variables.job, 'closeknit.dev/attempt': variables.attempt})
  # What a driver is told in a config may be as much as admin access. Which DeviceClass is that of NICs the site decides;
  # all selectors must hold, so that of whatever class no other device is allocated.
  - reason: Forbidden
    message: >-
      the operator's claims ask for devices of the class gpu.nvidia.com or mig.nvidia.com, and for NICs of the driver
      dra.net by their PCI addresses, without admin access and without a config
    expression: >-
      !variables.isClaim || !variables.isNew || (object.spec.devices.all(k, k == 'requests') &&
      object.spec.devices.requests.all(r, has(r.exactly) && !r.exactly.?adminAccess.orValue(false) &&
      (r.exactly.deviceClassName in ['gpu.nvidia.com', 'mig.nvidia.com'] || r.exactly.?selectors.orValue([]).exists(s, has(s.cel) &&
      s.cel.expression.matches(r"^device\.driver == 'dra\.net' && has\(device\.attributes\['dra\.net'\]\.pciAddress\) && device\.attributes\['dra\.net'\]\.pciAddress in \[[0-9a-fA-F:., ']+\]$")))))
  - reason: Forbidden
    message: >-
      a Pod of the operator has the default service account, or one that the operator has the verb use on, too; leave
      serviceAccountName out of the template, or have an administrator give {{ include "closeknit.operator.user" . }} that verb
    expression: >-
      variables.pods.all(p, p.?serviceAccountName.orValue('default') in ['', 'default'] ||
      authorizer.group('').resource('serviceaccounts').namespace(request.namespace).name(p.serviceAccountName).check('use').allowed())
  {{- include "closeknit.admitted.rules" (dict "whose" "a Pod of the operator" "title" "a Pod of the operator") | nindent 2 }}
  - reason: Forbidden
    message: a Pod of the operator goes through the default scheduler and uses no claim but its own
    expression: >-
      variables.trusted || variables.pods.all(p, p.?schedulerName.orValue('') == 'default-scheduler' &&
      p.?resourceClaims.orValue([]).all(c, c.?resourceClaimName.orValue('') == object.metadata.name ||
      c.?resourceClaimTemplateName.orValue('') == variables.job + '-a' + variables.attempt + '-imex'))
{{- end }}
