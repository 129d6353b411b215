// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
)

// K8S-25; K9 of the contract's tenants.md: the condition of a policy that flips is written less and less often, which health names. Another policy does not wait.
func TestServerAPolicyThatFlips(t *testing.T) {
	w := newWorld(t)
	w.create("flips", `"spec":`+goodRule)
	o := w.start()
	w.want("flips", "True", "")
	isBraked := func() bool { return strings.Contains(o.HealthText(), "changes again and again") }
	for i := 0; !isBraked(); i++ {
		if i == 100 {
			t.Fatal("the policy is not braked")
		}
		rule, want := goodRule, "True"
		if i%2 == 0 {
			rule, want = ruleWithPort("88888"), "False"
		}
		w.patch("flips", `{"spec":`+rule+`}`)
		operatortest.Eventually(t, "it is written, or braked", func() bool { return w.condition(w.policies, "flips")["status"] == want || isBraked() })
	}
	w.create("other", `"spec":`+ruleWithPort("88888"))
	w.want("other", "False", "Unable to parse port")
}
