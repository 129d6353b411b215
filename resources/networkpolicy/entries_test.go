// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// VALID-25, K3 of the contract's tenants.md: a rule with very many empty entries, which are a hundred times as large in memory, is a finding.
func TestRulesOfManyEntries(t *testing.T) {
	empty := "[" + strings.Repeat("{},", 480_000) + "{}]"
	for name, text := range map[string]string{
		"egress":    `{"endpointSelector":{},"egress":` + empty + `}`,
		"ingress":   `{"endpointSelector":{},"ingress":` + empty + `}`,
		"ports":     `{"endpointSelector":{},"egress":[{"toPorts":` + empty + `}]}`,
		"selectors": `{"endpointSelector":{},"ingress":[{"fromEndpoints":` + empty + `}]}`,
		"of HTTP":   `{"endpointSelector":{},"ingress":[{"toPorts":[{"rules":{"http":` + empty + `}}]}]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var r Rule
		if err := r.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 || !r.isRefused || r.undecoded {
			t.Errorf("%s: %d MiB are allocated, it is decoded: %v, what it refers to is known: %v", name, used>>20, !r.isRefused, !r.undecoded)
		}
	}
	var r Rule
	for what, text := range map[string]string{
		"entries": `"ingress":[` + strings.Repeat(`{"fromEntities":["all"]},`, 40_000) + `{}]`,
		"CIDRs":   `"ingress":[{"fromCIDRSet":[` + strings.Repeat(`{"cidr":"1.2.3.4/32"},`, 65_000) + `{"cidr":"1.2.3.4/32"}]}]`, // as many as fit in an object
	} {
		if err := r.UnmarshalJSON([]byte(`{"endpointSelector":{},` + text + `}`)); err != nil || r.undecoded || r.isRefused {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// VALID-25, K7 of the contract's tenants.md: what a rule with too many entries refers to is known all the same, so that nothing of others waits for it.
func TestReferencesOfManyEntries(t *testing.T) {
	many := strings.Repeat("{},", 100_000)
	var r Rule
	if err := r.UnmarshalJSON([]byte(`{"endpointSelector":{},
		"ingress":[` + many + `{"fromGroups":[{"aws":{"region":"in"}}],"toPorts":[{"terminatingTLS":{"secret":{"namespace":"a","name":"ends"}}}]}],
		"ingressDeny":[{"fromGroups":[{"aws":{"region":"not in"}}]}],
		"egress":[{"fromGroups":[{"aws":{"region":"no field of egress"}}],"toGroups":[` + many + `{"aws":{"region":"out"}}],"toPorts":[` + many + `{"originatingTLS":{"secret":{"namespace":"a","name":"begins"}},
			"rules":{"http":[` + many + `{"headerMatches":[` + many + `{"name":"x","secret":{"namespace":"b","name":"header"}},{"secret":{"namespace":"b","name":"header"}},{"secret":{"name":"none"}}]}]}}]}],
		"egressDeny":[{"toGroups":[{"aws":{"region":"not out"}}]}]}`)); err != nil {
		t.Fatal(err)
	}
	var groups []string
	for _, g := range r.groups {
		groups = append(groups, string(g))
	}
	if got, want := strings.Join(groups, " "), `{"aws":{"region":"in"}} {"aws":{"region":"not in"}} {} {"aws":{"region":"out"}} {"aws":{"region":"not out"}}`; got != want {
		t.Errorf("the groups are %s, want %s", got, want)
	}
	if got := fmt.Sprint(r.secrets.first); got != "[a/ends a/begins b/header]" || r.undecoded || !r.isRefused {
		t.Errorf("the secrets are %s; undecoded: %v, too large: %v", got, r.undecoded, r.isRefused)
	}
}

// K7 of the contract's tenants.md: so it is with a rule that has a number which the definition allows and no rule can have.
func TestReferencesOfRulesThatCannotBeDecoded(t *testing.T) {
	for _, list := range []string{"ingress", "ingressDeny", "egress", "egressDeny"} {
		text := `{"endpointSelector":{},"` + list + `":[{"icmps":[{"fields":[{"type":5000000000}]}],"fromGroups":[{}],"toGroups":[{}],"toPorts":[{"terminatingTLS":{"secret":{"namespace":"a","name":"b"}}}]}]}`
		p := Policy{}
		if err := errors.Join(p.Spec.UnmarshalJSON([]byte(text)), p.Specs.UnmarshalJSON([]byte("["+text+"]"))); err != nil {
			t.Fatal(err)
		}
		p.Trim()
		has, unknown := p.HasGroups()
		if secrets, _, hidden := p.Secrets(); !has || unknown || hidden || !p.IsRefused() || len(p.Spec.findings) == 0 || (len(secrets) != 2) != strings.HasSuffix(list, "Deny") {
			t.Errorf("%s: groups %v, unknown %v; secrets %v, unknown %v; refused: %v", list, has, unknown, secrets, hidden, p.IsRefused())
		}
	}
}

// DERIV-28: the entries of all rules count together where a policy is read.
func TestEntriesOfAllRules(t *testing.T) {
	for n, refused := range map[int]bool{20_000: false, 40_000: true} {
		rule := `{"endpointSelector":{},"ingress":[{"toPorts":[{"rules":{"l7proto":"x","l7":[` + strings.Repeat(`{"a":"b"},`, n) + `{}]}}]}]}`
		p := Policy{}
		if err := errors.Join(p.Spec.UnmarshalJSON([]byte(rule)), p.Specs.UnmarshalJSON([]byte("["+rule+","+rule+"]"))); err != nil {
			t.Fatal(err)
		}
		p.Trim()
		if p.IsRefused() != refused || p.Entries() < 3*n {
			t.Errorf("with %d entries it is refused: %v", p.Entries(), p.IsRefused())
		}
	}
	small := Policy{}
	if err := small.Specs.UnmarshalJSON([]byte("[" + strings.Repeat(`{"endpointSelector":{},"ingress":[{"fromEndpoints":[{}]}]},`, 500) + "{}]")); err != nil {
		t.Fatal(err)
	}
	if small.Trim(); small.IsRefused() {
		t.Errorf("one with small rules is refused: %d", small.Entries())
	}
}
