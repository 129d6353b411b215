// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/policy"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// decode decodes a policy of the namespace bb.
func decode(t *testing.T, fields string) *networkpolicy.Policy {
	t.Helper()
	codec, err := slim.JSON[networkpolicy.Policy]()
	if err != nil {
		t.Fatal(err)
	}
	p := &networkpolicy.Policy{}
	if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"web","namespace":"bb"},`+fields+`}`), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// repeated is a list of n elements, which have their number in the format.
func repeated(n int, format string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return strings.Join(all, ",")
}

// K8S-24: what is kept of a policy has a bound, whatever the policy is; a hundred of them have their place.
func TestKeptIsBounded(t *testing.T) {
	const http = `{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"80","protocol":"TCP"}],"rules":{"http":[%s]}}]}]}`
	long := strings.Repeat("!", 700_000)
	for name, c := range map[string]struct {
		fields string
		most   int
	}{
		"rules that are not valid":    {`"specs":[` + repeated(30_000, `{"endpointSelector":{"matchLabels":{"!%d":""}}}`) + `]`, 64 << 10},
		"rules of other namespaces":   {`"specs":[` + repeated(17_000, `{"endpointSelector":{"matchLabels":{"io.kubernetes.pod.namespace":"n%d"}}}`) + `]`, 64 << 10},
		"rules with long findings":    {`"specs":[` + repeated(100, `{"endpointSelector":{"matchLabels":{"%d`+strings.Repeat("!", 10_000)+`":""}}}`) + `]`, 64 << 10},
		"a long label":                {`"spec":{"endpointSelector":{"matchLabels":{"a":"` + long + `"}}}`, 64 << 10},
		"the name of a namespace":     {`"spec":{"endpointSelector":{"matchLabels":{"io.kubernetes.pod.namespace":"` + long + `"}}}`, 64 << 10},
		"a number that is too long":   {`"spec":{"endpointSelector":{},"egress":[{"toPorts":[{"ports":[{"port":"1","endPort":` + strings.Repeat("9", 700_000) + `}]}]}]}`, 64 << 10},
		"names of derived policies":   {`"status":{"derivativePolicies":{` + repeated(100_000, `"%06d":{}`) + `}}`, 64 << 10},
		"long names of those":         {`"status":{"derivativePolicies":{"a` + long + `":{},"b` + long + `":{}}}`, 64 << 10},
		"conditions":                  {`"status":{"conditions":[` + repeated(20_000, `{"type":"t%d","status":"True","message":"m"}`) + `]}`, 64 << 10},
		"the message of the own one":  {`"status":{"conditions":[{"type":"Valid","status":"` + long + `","message":"` + long + `"}]}`, 64 << 10},
		"Secrets":                     {`"spec":` + fmt.Sprintf(http, `{"headerMatches":[`+repeated(20_000, `{"name":"h","secret":{"namespace":"bb","name":"s%d"}}`)+`]}`), 128 << 10},
		"Secrets of many rules":       {`"specs":[` + fmt.Sprintf(strings.TrimSuffix(strings.Repeat(http+",", 5), ","), secretRules()...) + `]`, 128 << 10},
		"long names of Secrets":       {`"spec":` + fmt.Sprintf(http, `{"headerMatches":[{"name":"h","secret":{"namespace":"bb","name":"`+long+`"}}]}`), 64 << 10},
		"a group of a cloud":          {`"spec":{"endpointSelector":{},"egress":[{"toGroups":[{"aws":{"securityGroupsIds":[` + repeated(80_000, `"sg-%08d"`) + `]}}]}]}`, 64 << 10},
		"large groups of many rules":  {`"specs":[` + repeated(10, `{"endpointSelector":{},"egress":[{"toGroups":[{"aws":{"region":"%d`+strings.Repeat("x", 100_000)+`"}}]}]}`) + `]`, 256 << 10},
		"rules that are not decoded":  {`"specs":[` + repeated(100_000, `%d`) + `]`, 64 << 10},
		"the namespace of one is odd": {`"specs":[` + repeated(10, `{"endpointSelector":{"matchLabels":{"io.kubernetes.pod.namespace":"%d`+strings.Repeat("x", 70_000)+`"}}}`) + `]`, 64 << 10},
	} {
		if size := slim.SizeOf(decode(t, c.fields)); size > c.most {
			t.Errorf("%s: %d bytes are kept of %d", name, size, len(c.fields))
		}
	}
}

// secretRules are five lists of rules for HTTP with Secrets of their own.
func secretRules() (all []any) {
	for i := range 5 {
		all = append(all, `{"headerMatches":[`+repeated(3000, `{"name":"h","secret":{"namespace":"bb","name":"s`+fmt.Sprint(i)+`-%d"}}`)+`]}`)
	}
	return all
}

// VALID-2, VALID-8: the first ten problems are reported, and how many other rules have one, for agents of any release and with any options; what those do not
// mind leaves nothing out.
func TestProblemsAreCounted(t *testing.T) {
	rules := []string{
		`{"endpointSelector":{},"egress":[{"toEntities":["all"]}]}`,
		`{"endpointSelector":{},"egress":[{"toEntities":["mars-%d"]}]}`,
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"80","protocol":"TCP"}],"rules":{"http":[{"path":"/%d"}]}}]}]}`,
		`{"endpointSelector":{},"egress":[{"icmps":[{"fields":[{"type":8}]}],"toCIDR":["10.%d.0.0/16"]}]}`,
		`{"endpointSelector":{},"egress":[{"toNodes":[{"matchLabels":{"n":"%d"}}]}]}`,
		`{"endpointSelector":{},"ingress":[{"fromEndpoints":[{"matchLabels":{"a":"%d"}}],"authentication":{"mode":"required"}}]}`,
		`{"endpointSelector":{"matchLabels":{"io.kubernetes.pod.namespace":"n%d"}},"egress":[{}]}`,
		`{"endpointSelector":{"matchLabels":{"io.kubernetes.pod.namespace":"bb","a":"%d"}},"egress":[{}]}`,
		`{"nodeSelector":{"matchLabels":{"a":"%d"}},"egress":[{}]}`,
		`{"endpointSelector":{},"egress":[{"toFQDNs":[{"matchPattern":"%d` + strings.Repeat("x", 256) + `"}]}]}`,
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		some := slices.Clone(rules)
		random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		some = some[:1+random.IntN(4)]
		var list []string
		for i := range random.IntN(80) {
			one := some[random.IntN(len(some))]
			if strings.Contains(one, "%d") {
				one = fmt.Sprintf(one, i)
			}
			list = append(list, one)
		}
		p := decode(t, `"specs":[`+strings.Join(list, ",")+`]`)
		for _, r := range release.All() {
			for on := range policy.Features(64) {
				var want []string
				for _, one := range list {
					texts, _ := decoded(t, one).Problems(on, r)
					want = append(want, texts...)
				}
				got, more := p.Problems(on, r)
				if first := want[:min(len(want), networkpolicy.MaxProblems)]; !slices.Equal(got, first) || more != len(want)-len(first) {
					t.Fatalf("%q in %s with %b: %q and %d more, want %q", list, r, on, got, more, want)
				}
			}
		}
	}
}

var known = map[string]*networkpolicy.Policy{}

// decoded is the policy of one rule.
func decoded(t *testing.T, rule string) *networkpolicy.Policy {
	t.Helper()
	if known[rule] == nil {
		known[rule] = decode(t, `"spec":`+rule)
	}
	return known[rule]
}

// SEC-16: the first Secrets of a policy are known, and how many others there are, each once.
func TestSecretsAreCounted(t *testing.T) {
	rule := func(from, to int) string {
		var all []string
		for i := from; i < to; i++ {
			all = append(all, fmt.Sprintf(`{"name":"h","secret":{"namespace":"bb","name":"s%d"}}`, i))
		}
		return `{"endpointSelector":{},"ingress":[{"toPorts":[{"rules":{"http":[{"headerMatches":[` + strings.Join(all, ",") + `]}]}}]}]}`
	}
	first, beyond, unknown := decode(t, `"specs":[`+rule(0, 1500)+`,`+rule(500, 1700)+`,`+rule(0, 1)+`]`).Secrets()
	if len(first) != networkpolicy.MaxSecrets || first[0].Name != "s0" || first[999].Name != "s999" || beyond != 700 || unknown {
		t.Errorf("%d Secrets and %d others, unknown: %v", len(first), beyond, unknown)
	}
	if first, beyond, _ := decode(t, `"spec":`+rule(0, 2)+`,"specs":[`+rule(0, 3)+`]`).Secrets(); len(first) != 5 || beyond != 0 {
		t.Errorf("%d Secrets and %d others", len(first), beyond)
	}
}

// DERIV-11 and VALID-10: of a status is kept what decides what is written.
func TestStatus(t *testing.T) {
	for text, want := range map[string]int{`null`: 0, `{}`: 0, `{"a":{"ok":true}}`: 1, `{"a":null,"b":{}}`: 2, `{"a":{},"b":{},"c":{}}`: 2} {
		if got := decode(t, `"status":{"derivativePolicies":`+text+`}`).Derived(); len(got) != want || want > 0 && got[0] != "a" {
			t.Errorf("%s: %q", text, got)
		}
	}
	p := decode(t, `"status":{"derivativePolicies":["a"],"conditions":[{"type":"A"},{"type":"Valid","status":"True","message":"m"},{"type":"Valid"}]}`)
	if !p.CannotDecode("status.derivativePolicies") || p.CannotDecode("status.conditions") {
		t.Errorf("cannot decode: %v", p.DecodeError())
	}
	if c := p.Conditions(); c.Len != 3 || c.Place != 1 || c.Valid.Status.String() != "True" || c.Valid.Message.String() != "m" {
		t.Errorf("conditions: %+v", c)
	}
	if p := decode(t, `"status":{"conditions":[{"type":7}]}`); !p.CannotDecode("status.conditions") {
		t.Error("a condition that cannot be decoded is")
	}
}
