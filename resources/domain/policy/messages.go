// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"fmt"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/expression"
)

const (
	textManyL7     = "multiple L7 protocol rule types specified in single rule"
	textNoL7Proto  = "'l7' may only be specified when a 'l7proto' is also specified"
	textHeaderName = "Header name missing"
	textSecretName = "Secret name missing"
)

// hasL7 reports whether rules for messages are present, if only as an empty list.
func (k *check) hasL7(r *v2.L7Rules) bool {
	return r != nil && (k.protocols(r) > 0 || r.L7 != nil && k.Messages)
}

// protocols is the number of protocols that have rules.
func (k *check) protocols(r *v2.L7Rules) (n int) {
	for _, present := range []bool{r.HTTP != nil, r.DNS != nil, r.Kafka != nil && k.Messages, r.L7Proto != "" && k.Messages} {
		if present {
			n++
		}
	}
	return n
}

func (k *check) checkL7(r *v2.L7Rules) string {
	switch {
	case r == nil:
		return ""
	case k.protocols(r) > 1:
		return textManyL7
	case k.Messages && r.L7 != nil && r.L7Proto == "":
		return textNoL7Proto
	}
	if text := k.checkHTTP(r.HTTP); text != "" {
		return text
	}
	for _, s := range r.DNS {
		if text := k.checkFQDN(s); text != "" {
			return text
		}
	}
	return ""
}

func checkHTTP(r v2.HTTPRule) string {
	for _, text := range []string{r.Path, r.Method} {
		if err := expression.Check(text); err != nil {
			return err.Error()
		}
	}
	for _, h := range r.HeaderMatches {
		switch h.Mismatch {
		case "", v2.HeaderMismatchLog, v2.HeaderMismatchAdd, v2.HeaderMismatchDelete, v2.HeaderMismatchReplace:
		default:
			return fmt.Sprintf("Invalid header action: %s", h.Mismatch)
		}
		switch {
		case h.Name == "":
			return textHeaderName
		case h.Secret != nil && h.Secret.Name == "":
			return textSecretName
		}
	}
	return ""
}
