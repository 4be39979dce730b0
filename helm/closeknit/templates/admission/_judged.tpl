{{/*
One condition in which a whole policy is judged: it holds for what breaks a rule of the policy, and for nothing else. The
API server makes CEL values of the object anew for the conditions of a policy, its validations, their messages (all are
made, refused or not) and its audit annotations. A request that no condition holds for is spared three of these four; the
validations, which are the same rules, then only say what is wrong with one that is refused.

Call with (dict "rules" RULES "who" EXPRESSION "given" (dict NAME EXPRESSION)): RULES has `variables` and `validations` as
a policy has them, `who` is what the policy is for, and `given` says what variables are in the condition that do not exist
there. Conditions have no variables, so each stands where it is used; one may use those before it.
*/}}
{{- define "closeknit.judged" -}}
{{- $rules := list -}}
{{- range .rules.validations -}}
{{- $rules = append $rules (printf "(%s)" .expression) -}}
{{- end -}}
{{- $rule := join " && " $rules -}}
{{- $given := .given -}}
{{- range reverse .rules.variables -}}
{{- $rule = regexReplaceAllLiteral (printf `variables\.%s\b` .name) $rule (printf "(%s)" (get $given .name | default .expression)) -}}
{{- end -}}
{{ .who }} && !({{ $rule }})
{{- end }}
