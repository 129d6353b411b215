// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/runtime/printable"
)

// validity is the Valid condition without its time.
type validity struct {
	Status  metav1.ConditionStatus `json:"status"`
	Message string                 `json:"message"`
}

const succeeded = "Policy validation succeeded"

// maxMessage is the most bytes of a message, about ten lines of a terminal for each of ten findings.
const maxMessage = 8 << 10

// validityOf is the condition of a policy whose first rules have these problems, one line each, and more rules others.
func validityOf(problems []string, more int) validity {
	if len(problems)+more == 0 {
		return validity{metav1.ConditionTrue, succeeded}
	}
	return validity{metav1.ConditionFalse, shorten(problems, more)}
}

// shorten joins lines, of which nothing that others have written in them makes more, and counts those for which there is no place, and more.
func shorten(lines []string, more int) string {
	var b strings.Builder
	for i, line := range lines {
		line = printable.Line(line)
		if b.Len()+len(line) >= maxMessage {
			if i == 0 {
				b.WriteString(strings.ToValidUTF8(line[:maxMessage/2], "") + "…")
				i++
			}
			more += len(lines) - i
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line)
	}
	switch {
	case more > 0 && b.Len() == 0: // their findings are too long to be kept
		fmt.Fprintf(&b, "%d rules are not valid", more)
	case more > 0:
		fmt.Fprintf(&b, "\nand %d more rules are not valid", more)
	}
	return b.String()
}

// current is the validity in a policy's status, the zero validity if there is none.
func current(p *networkpolicy.Policy) validity {
	is := p.Conditions().Valid
	if is == nil {
		return validity{}
	}
	return validity{metav1.ConditionStatus(is.Status.String()), is.Message.String()}
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

const conditionsPath = "/status/conditions"

// patch is the JSON patch that writes a validity to a policy in the state that the cache has, and nothing else.
func patch(p *networkpolicy.Policy, want validity, now time.Time) ([]byte, error) {
	ops := []operation{{"test", "/metadata/resourceVersion", p.ResourceVersion.String()}}
	if p.Status == nil {
		ops = append(ops, operation{"add", "/status", map[string]any{}})
	}
	return json.Marshal(append(ops, changes(p.Conditions(), want, now.UTC().Format(time.RFC3339))...))
}

func changes(conditions networkpolicy.Conditions, want validity, now string) (ops []operation) {
	is := conditions.Valid
	if is == nil {
		added := map[string]any{
			"type": v2.PolicyConditionValid, "status": want.Status, "lastTransitionTime": now, "message": want.Message,
		}
		if conditions.Len == 0 {
			return []operation{{"add", conditionsPath, []any{added}}}
		}
		return []operation{{"add", conditionsPath + "/-", added}}
	}
	path := fmt.Sprintf("%s/%d/", conditionsPath, conditions.Place)
	if is.Status.String() != string(want.Status) {
		ops = append(ops, operation{"add", path + "status", want.Status}, operation{"add", path + "lastTransitionTime", now})
	}
	if is.Message.String() != want.Message {
		ops = append(ops, operation{"add", path + "message", want.Message})
	}
	return ops
}
