// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/policy"
)

var all = policy.Features(0).With(policy.L7Proxy).With(policy.ICMPRules).With(policy.NodeSelectors)

// oldest is what 1.17 checks.
var oldest = policy.Dialect{Protocols: "tcp | udp | sctp | any", Messages: true, Requires: true}

func rule(t *testing.T, text string) *v2.Rule {
	t.Helper()
	r := &v2.Rule{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(text, err)
	}
	return r
}

// repeated is a list of n times the same element.
func repeated(n int, element string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

const (
	endpoint = `"endpointSelector":{}`
	node     = `"nodeSelector":{}`
)

// egress is a rule with one entry of egress.
func egress(entry string) string { return fmt.Sprintf(`{%s,"egress":[%s]}`, endpoint, entry) }

func ingress(entry string) string { return fmt.Sprintf(`{%s,"ingress":[%s]}`, endpoint, entry) }

// port is an entry of toPorts with one port.
func port(p, more string) string { return fmt.Sprintf(`{"toPorts":[{"ports":[%s]%s}]}`, p, more) }

const (
	tcp  = `{"port":"80","protocol":"TCP"}`
	http = `,"rules":{"http":[{}]}`
)

// VALID-6: the texts, with all features of agents.
func TestCheckTexts(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                                   "rule must have one of EndpointSelector or NodeSelector",
		fmt.Sprintf("{%s,%s}", endpoint, node): "rule cannot have both EndpointSelector and NodeSelector",
		`{"endpointSelector":{"matchLabels":{"any:app":"web","k8s:io.kubernetes.pod.namespace":"default","reserved:host":""}}}`: "",
		`{"endpointSelector":{"matchLabels":{"k8s:app.kubernetes.io/name":"a"}}}`:                                               "",
		`{"endpointSelector":{"matchLabels":{"a b":"x"}}}`:                                                                      "invalid label selector: matchLabels: Invalid value: \"a b\":*",
		`{"endpointSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`:                                               "invalid label selector: matchExpressions[0].values: Required value*",
		egress(`{"toEndpoints":[{"matchExpressions":[{"key":"a","operator":"Like"}]}]}`):                                        "invalid label selector: matchExpressions[0].operator: Invalid value: \"Like\"*",

		fmt.Sprintf(`{%s,"ingress":[%s]}`, node, port(tcp, http)):                                 "L7 policy is not supported on host ingress yet",
		fmt.Sprintf(`{%s,"egress":[%s]}`, node, port(tcp, http)):                                  "L7 protocol HTTP is not supported on host egress yet",
		fmt.Sprintf(`{%s,"egress":[%s]}`, node, port(tcp, `,"rules":{"kafka":[]}`)):               "L7 protocol Kafka is not supported on host egress yet",
		fmt.Sprintf(`{%s,"egress":[%s]}`, node, port(tcp, `,"rules":{"dns":[]}`)):                 "",
		ingress(port(tcp, `,"rules":{"dns":[{}]}`)):                                               "L7 protocol DNS is not supported on ingress yet",
		egress(`{"toCIDRSet":[{"cidr":"10.9.0.0/16"}],"toGroups":[{}]}`):                          "Combining ToCIDRSet and ToGroups is not supported yet",
		ingress(`{"fromNodes":[{}],"fromEntities":["all"],"fromCIDR":["10.0.0.0/8"]}`):            "Combining FromCIDR and FromEntities is not supported yet",
		ingress(`{"fromNodes":[],"fromEntities":["all"]}`):                                        "",
		egress(`{"toFQDNs":[{"matchName":"a"}],"toEndpoints":[{}]}`):                              "Combining ToEndpoints and ToFQDNs is not supported yet",
		egress(`{"toServices":[{}],"toPorts":[{}]}`):                                              "Combining ToServices and ToPorts is not supported yet",
		egress(`{"toServices":[{"k8sServiceSelector":{"selector":{"matchLabels":{"a b":""}}}}]}`): "invalid label selector: *",

		egress(`{"icmps":[{"fields":[{"type":8}]}],"toPorts":[{}]}`):                                           "The ICMPs block may only be present without ToPorts. Define a separate rule to use ToPorts.",
		egress(`{"icmps":[{"fields":[{"type":"EchoRequest","family":"IPv6"}]}]}`):                              "",
		egress(`{"icmps":[{"fields":[{"type":8,"family":"ipv4"}]}]}`):                                          "wrong family: ipv4",
		egress(fmt.Sprintf(`{"icmps":[{"fields":%s}]}`, repeated(41, `{"type":8}`))):                           "too many types, the max is 40",
		egress(fmt.Sprintf(`{"icmps":[{"fields":%s}]}`, repeated(40, `{"type":8}`))):                           "",
		egress(fmt.Sprintf(`{"toPorts":[{"ports":%s}]}`, repeated(41, tcp))):                                   "too many ports, the max is 40",
		egress(fmt.Sprintf(`{"toPorts":[{"ports":%s}]}`, repeated(40, tcp))):                                   "",
		egress(port(`{"port":""}`, "")):                                                                        "Port must be specified",
		egress(port(`{"port":"99999"}`, "")):                                                                   `Unable to parse port: strconv.ParseUint: parsing "99999": value out of range`,
		egress(port(`{"port":"sixteen-letters-"}`, "")):                                                        `Unable to parse port: strconv.ParseUint: parsing "sixteen-letters-": invalid syntax`,
		egress(port(`{"port":"fifteen-letters"}`, "")):                                                         "",
		egress(port(`{"port":"-http"}`, "")):                                                                   "Unable to parse port: *",
		egress(port(`{"port":"0"}`, "")):                                                                       "",
		egress(port(`{"port":"80","protocol":"sctp"}`, "")):                                                    "",
		egress(port(`{"port":"80","protocol":"icmp"}`, "")):                                                    `invalid protocol "icmp", must be { tcp | udp | sctp | any }`,
		egress(port(`{"port":"0","protocol":"TCP"}`, http)):                                                    "L7 rules can not be used when a port is 0",
		egress(port(`{"port":"80","protocol":"UDP"}`, http)):                                                   "L7 rules can only apply to TCP (not UDP) except for DNS rules",
		egress(port(`{"port":"80"}`, http)):                                                                    "L7 rules can only apply to TCP (not ANY) except for DNS rules",
		egress(port(`{"port":"http","protocol":"TCP"}`, http)):                                                 "",
		egress(port(`{"port":"53","endPort":54}`, `,"rules":{"dns":[]}`)):                                      "DNS rules do not support port ranges",
		egress(port(`{"port":"53","protocol":"UDP"}`, `,"rules":{"dns":[{"matchPattern":"*.a.b"}]}`)):          "",
		egress(port("", `,"rules":{"dns":[]}`)):                                                                "Port 53 must be specified for DNS rules",
		egress(port(tcp, http+`,"serverNames":["a"]`)):                                                         "ServerNames are not allowed with L7 rules without TLS termination",
		egress(port(tcp, http+`,"serverNames":["a"],"terminatingTLS":{"secret":{"name":"s"}}`)):                "",
		egress(port(tcp, `,"serverNames":["a",""]`)):                                                           "Empty server name is not allowed",
		ingress(port(tcp, `,"listener":{"name":"l","envoyConfig":{"name":"e"}}`)):                              "Listener is not allowed on ingress (l)",
		egress(port(tcp, http+`,"listener":{"name":"l","envoyConfig":{"name":"e"}}`)):                          "Listener is not allowed with L7 rules (l)",
		egress(port(tcp, `,"listener":{"name":"l","envoyConfig":{"name":"e"}}`)):                               "",
		egress(port(tcp, `,"rules":{"http":[],"kafka":[]}`)):                                                   "multiple L7 protocol rule types specified in single rule",
		egress(port(tcp, `,"rules":{"l7":[{"a":"b"}]}`)):                                                       "'l7' may only be specified when a 'l7proto' is also specified",
		egress(port(tcp, `,"rules":{"l7proto":"x","l7":[{"a":"b"}]}`)):                                         "",
		egress(port(tcp, `,"rules":{"http":[{"path":"/a(b"}]}`)):                                               "error parsing regexp: missing closing ): `/a(b`",
		egress(port(tcp, `,"rules":{"http":[{"path":"`+strings.Repeat(".{1000}", 2800)+`"}]}`)):                `regular expression ".{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}."… is too long: it has 19600 bytes, and may have 8192; split it`, // VALID-E6
		egress(port(tcp, `,"rules":{"http":[{"method":"(.{9}){99}[^/]{1000}\\pL{100}"}]}`)):                    `regular expression "(.{9}){99}[^/]{1000}\\pL{100}" is too large: its program has about *`,
		egress(port(tcp, `,"rules":{"http":[{"method":"*"}]}`)):                                                "error parsing regexp: missing argument to repetition operator: `*`",
		egress(port(tcp, `,"rules":{"http":[{"headerMatches":[{"value":"v"}]}]}`)):                             "Header name missing",
		egress(port(tcp, `,"rules":{"http":[{"headerMatches":[{"name":"n","mismatch":"DROP"}]}]}`)):            "Invalid header action: DROP",
		egress(port(tcp, `,"rules":{"http":[{"headerMatches":[{"name":"n","mismatch":"LOG","secret":{}}]}]}`)): "Secret name missing",
		egress(port(`{"port":"53"}`, `,"rules":{"dns":[{"matchName":"a b"}]}`)):                                `Invalid characters in MatchName: "a b". Only 0-9, a-z, A-Z and . and - characters are allowed`,

		egress(`{"toCIDR":["10.0.0.1","10.0.0.0/8","fd00::/8","::1"]}`):                                "",
		egress(`{"toCIDR":["10.0.0.0/33"]}`):                                                           "unable to parse CIDR: *",
		egress(`{"toCIDR":["fe80::1%eth0"]}`):                                                          "unable to parse CIDR: *",
		egress(`{"toCIDRSet":[{"cidr":"10.0.0.1"}]}`):                                                  `Unable to parse CIDRRule "10.0.0.1": *`,
		egress(`{"toCIDRSet":[{"cidrGroupRef":"g"}]}`):                                                 "",
		egress(`{"toCIDRSet":[{"cidrGroupRef":"g","except":["11.0.0.0/8"]}]}`):                         "",
		egress(`{"toCIDRSet":[{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}]}`):                       "",
		egress(`{"toCIDRSet":[{"cidr":"10.0.0.0/8","except":["11.0.0.0/8"]}]}`):                        "allow CIDR prefix 10.0.0.0/8 does not contain exclude CIDR prefix 11.0.0.0/8",
		egress(`{"toCIDRSet":[{"cidr":"10.0.0.0/16","except":["10.0.0.0/8"]}]}`):                       "",
		egress(`{"toCIDRSet":[{"cidr":"10.0.0.0/8","except":["fd00::/8"]}]}`):                          "allow CIDR prefix 10.0.0.0/8 does not contain exclude CIDR prefix fd00::/8",
		egress(`{"toEntities":["world-ipv4","kube-apiserver"]}`):                                       "",
		egress(`{"toEntities":["world","mars"]}`):                                                      "unsupported entity: mars",
		egress(`{"toFQDNs":[{"matchName":"a b"}]}`):                                                    `Invalid characters in MatchName: "a b". Only 0-9, a-z, A-Z and . and - characters are allowed`,
		egress(`{"toFQDNs":[{"matchPattern":"*.a/b"}]}`):                                               `Invalid characters in MatchPattern: "*.a/b". Only 0-9, a-z, A-Z and ., - and * characters are allowed`,
		egress(`{"toFQDNs":[{"matchName":"a","matchPattern":"*"}]}`):                                   "only one of MatchName or MatchPattern is allowed in an FQDNSelector",
		egress(`{"toNodes":[{"matchLabels":{"a":"b"}}]}`):                                              "",
		fmt.Sprintf(`{%s,"egressDeny":[%s]}`, endpoint, port(`{"port":"99999"}`, "")):                  "Unable to parse port: *", // VALID-7
		fmt.Sprintf(`{%s,"ingressDeny":[{"fromCIDR":["x"]}]}`, endpoint):                               "unable to parse CIDR: *",
		fmt.Sprintf(`{%s,"egressDeny":[{"toGroups":[{}],"toEntities":["all"]}]}`, endpoint):            "Combining ToEntities and ToGroups is not supported yet",
		fmt.Sprintf(`{%s,"ingressDeny":[{"icmps":[{"fields":[{"type":8,"family":"x"}]}]}]}`, endpoint): "wrong family: x",
	} {
		got := policy.NewChecker(rule(t, text)).Check(oldest).First(all)
		if prefix, open := strings.CutSuffix(want, "*"); open && !strings.HasPrefix(got, prefix) || !open && got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// VALID-E6: a large policy costs in proportion to its bytes, whatever its expressions are; the API server accepts three times as much.
func TestCheckLargest(t *testing.T) {
	for _, path := range []string{
		strings.Repeat(".{1000}", 2800), strings.Repeat(".{1000}", 8), strings.Repeat(".{1000}", 1000), "[" + strings.Repeat(`\\pL`, 8) + "]",
		"(?i)[B-\U0001e942]", strings.Repeat("a?", 4000), "a" + strings.Repeat("|", 8000),
	} {
		entry := `{"path":"` + path + `"}`
		r := rule(t, egress(port(tcp, `,"rules":{"http":`+repeated(500_000/len(entry), entry)+`}`)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		policy.NewChecker(r).Check(oldest)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 150<<20 { // a parse of any text has up to 250 bytes for each of it
			t.Errorf("%.40s: %d MiB were allocated", path, allocated>>20)
		}
	}
}

// VALID-4 and VALID-5: what depends on options of agents, and the order of findings.
func TestCheckFeatures(t *testing.T) {
	const (
		l7    = "L7 policy is not supported since L7 proxy is not enabled"
		icmp  = `ICMP rules can only be applied when the "enable-icmp-rules" flag is set`
		nodes = `FromNodes/ToNodes rules can only be applied when the "enable-node-selector-labels" flag is set`
	)
	for _, test := range []struct {
		rule string
		on   policy.Features
		want string
	}{
		{egress(port(tcp, http)), all, ""},
		{egress(port(tcp, http)), policy.Features(0).With(policy.ICMPRules), l7},
		{egress(port(tcp, `,"rules":{}`)), 0, ""},
		{egress(`{"icmps":[{"fields":[{"type":8}]}]}`), policy.Features(0).With(policy.L7Proxy), icmp},
		{egress(`{"icmps":[{"fields":[{"type":8}]}]}`), all, ""},
		{ingress(`{"fromNodes":[{}]}`), policy.Features(0).With(policy.L7Proxy), nodes},
		{ingress(`{"fromNodes":[{}],"toPorts":[{"ports":[{"port":""}]}]}`), 0, "Port must be specified"},
		{ingress(`{"fromNodes":[{}]},{"toPorts":[{"ports":[{"port":""}]}]}`), 0, nodes},
		{ingress(`{"fromNodes":[{}]},{"toPorts":[{"ports":[{"port":""}]}]}`), all, "Port must be specified"},
		{egress(port(`{"port":"0","protocol":"TCP"}`, http)), 0, l7},
	} {
		if got := policy.NewChecker(rule(t, test.rule)).Check(oldest).First(test.on); got != test.want {
			t.Errorf("%s with %b: %q, want %q", test.rule, test.on, got, test.want)
		}
	}
}

// VALID-3: any rule is checked without a panic, with the same result each time, and is not changed.
func TestCheckIsPure(t *testing.T) {
	pieces := []string{
		`"endpointSelector":{}`, `"nodeSelector":{"matchLabels":{"x y":"","a:b:c":"d","é":"f"}}`, `"endpointSelector":{"matchExpressions":[{}]}`,
		`"ingress":[{}]`, `"egress":[]`, `"egressDeny":[{"toCIDRSet":[{}]}]`, `"ingress":[{"fromCIDRSet":[{"cidr":"0.0.0.0/0","except":["::/0"]}],"fromNodes":[{}]}]`,
		`"egress":[{"toPorts":[{"ports":[{"port":"1","endPort":-5}],"rules":{"dns":[{}],"http":null}},{}],"icmps":[{}]}]`,
		`"egress":[{"toServices":[{"k8sService":{}},{"k8sServiceSelector":{}}]},{"toFQDNs":[{}]}]`,
		`"ingressDeny":[{"toPorts":[{"ports":[{"port":"\u0000"}]}]}]`, `"labels":[{}]`, `"enableDefaultDeny":{}`,
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var parts []string
		for _, i := range random.Perm(len(pieces))[:random.IntN(len(pieces))] {
			parts = append(parts, pieces[i])
		}
		r := rule(t, "{"+strings.Join(parts, ",")+"}")
		before := r.DeepCopy()
		first := policy.NewChecker(r).Check(oldest)
		if again := policy.NewChecker(r).Check(oldest); !reflect.DeepEqual(first, again) {
			t.Fatalf("%s: %v, and then %v", parts, first, again)
		}
		if !reflect.DeepEqual(r, before) {
			t.Fatalf("%s was changed", parts)
		}
		for on := range policy.Features(16) {
			if got, any := first.First(on), first.First(0); got != "" && any == "" {
				t.Fatalf("%s: a feature makes it invalid: %q", parts, got)
			}
		}
	}
}
