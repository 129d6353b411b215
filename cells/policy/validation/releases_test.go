// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/policy"
	"github.com/skep-operator/skep/resources/networkpolicy"
)

// valid is the message of a policy without a finding.
const valid = ""

// in is a message in each release, the oldest first.
func in(r17, r18, r19, r20 string) [4]string { return [...]string{r17, r18, r19, r20} }

// since is one message before a release, and another one from it on.
func since(minor int, before, from string) (all [4]string) {
	for i := range all {
		if all[i] = before; 17+i >= minor {
			all[i] = from
		}
	}
	return all
}

func spec(rule string) string { return `"spec":{"endpointSelector":{},` + rule + `}` }

func egress(entry string) string { return spec(`"egress":[` + entry + `]`) }

// Numbers 15 to 21 and 23 of the contract's policies.md; VALID-20, VALID-21, VALID-23 and VALID-E7: what is valid in which release, and how it is said. An entry that
// ends with a star begins so.
func TestReleases(t *testing.T) {
	const (
		noEntry = "rule must have at least one of Ingress, IngressDeny, Egress, EgressDeny"
		noPort  = "port must be specified"
		oneOf   = "one of cidr, cidrGroupRef, or cidrGroupSelector is required"
		twoOf   = "more than one of cidr, cidrGroupRef, or cidrGroupSelector may not be set"
		nodes   = `FromNodes/ToNodes rules can only be applied when the "enable-node-selector-labels" flag is set`
		auth    = "mutual auth feature is disabled but an %s auth rule is defined in policy"
		classic = `invalid protocol "VRRP", must be { tcp | udp | sctp | any }`
	)
	usual := policy.Features(0).With(policy.L7Proxy).With(policy.ICMPRules)
	long := strings.Repeat("a", 252) + ".com"
	for name, c := range map[string]struct {
		rules string
		on    policy.Features
		want  [4]string
	}{
		"15: Services with ports": {egress(`{"toServices":[{"k8sService":{"serviceName":"a","namespace":"shop"}}],"toPorts":[{"ports":[{"port":"80","protocol":"TCP"}]}]}`), usual,
			since(18, "Combining ToServices and ToPorts is not supported yet", valid)},
		"16: no list":        {`"spec":{"endpointSelector":{"matchLabels":{"a":"b"}}}`, usual, since(18, valid, noEntry)},
		"16: an empty list":  {spec(`"ingress":[]`), usual, since(18, valid, noEntry)},
		"16: one deny list":  {spec(`"egressDeny":[{"toEntities":["world"]}]`), usual, in(valid, valid, valid, valid)},
		"16: before others":  {`"spec":{}`, usual, since(18, "rule must have one of EndpointSelector or NodeSelector", noEntry)},
		"17: group selector": {egress(`{"toCIDRSet":[{"cidrGroupSelector":{"matchLabels":{"a":"b"}}}]}`), usual, since(18, `Unable to parse CIDRRule "": *`, valid)},
		"17: none of them":   {egress(`{"toCIDRSet":[{}]}`), usual, since(18, `Unable to parse CIDRRule "": *`, oneOf)},
		"17: two of them":    {egress(`{"toCIDRSet":[{"cidr":"10.0.0.0/8","cidrGroupRef":"g"}]}`), usual, since(18, valid, twoOf)},
		"17: bad selector": {egress(`{"toCIDRSet":[{"cidrGroupSelector":{"matchLabels":{"a b":"b"}}}]}`), usual,
			in(`Unable to parse CIDRRule "": *`, "failed to parse cidrGroupSelector*", "failed to parse cidrGroupSelector*", "failed to sanitize cidrGroupSelector*")},
		"17: exceptions of a group":     {egress(`{"toCIDRSet":[{"cidrGroupRef":"g","except":["x"]}]}`), usual, since(18, `Unable to parse CIDRRule "x": *`, valid)},
		"17: bad range":                 {egress(`{"toCIDRSet":[{"cidr":"x"}]}`), usual, since(18, `Unable to parse CIDRRule "x": *`, `unable to parse CIDRRule "x": *`)},
		"an exception that is larger":   {egress(`{"toCIDRSet":[{"cidr":"10.0.0.0/16","except":["10.0.0.0/8"]}]}`), usual, since(20, valid, "allow CIDR prefix 10.0.0.0/16 does not contain exclude CIDR prefix 10.0.0.0/8")},
		"18: protocol without a port":   {egress(`{"toPorts":[{"ports":[{"protocol":"VRRP"}]}]}`), usual, in("Port must be specified", "Port must be specified", noPort, noPort)},
		"18: the same, with the option": {egress(`{"toPorts":[{"ports":[{"protocol":"VRRP"}]}]}`), usual.With(policy.EmptyPorts), in("Port must be specified", "Port must be specified", valid, valid)},
		"18: the protocol has no ports": {egress(`{"toPorts":[{"ports":[{"port":"80","protocol":"VRRP"}]}]}`), usual, in(classic, classic, "port must be empty or 0", "port must be empty or 0")},
		"18: port 0":                    {egress(`{"toPorts":[{"ports":[{"port":"0","protocol":"igmp"}]}]}`), usual, in("invalid protocol*", "invalid protocol*", valid, valid)},
		"18: GRE":                       {egress(`{"toPorts":[{"ports":[{"port":"0","protocol":"GRE"}]}]}`), usual, since(20, "invalid protocol*", valid)},
		"18: unknown":                   {egress(`{"toPorts":[{"ports":[{"port":"1","protocol":"x"}]}]}`), usual, in("invalid protocol*", "invalid protocol*", `invalid protocol "x", must be { tcp | udp | sctp | vrrp | igmp | any }`, `invalid protocol "x", must be { tcp | udp | sctp | vrrp | igmp | gre | ipip | ipv6 | esp | ah | any }`)},
		"19: underscores and stars":     {egress(`{"toFQDNs":[{"matchName":"a_b.example.com"},{"matchPattern":"**.example.com"}]}`), usual, in(valid, valid, valid, valid)},
		"characters of names":           {egress(`{"toFQDNs":[{"matchName":"a b"}]}`), usual, since(19, `Invalid characters in MatchName: "a b". Only 0-9, a-z, A-Z and . and - characters are allowed`, `Invalid characters in MatchName: "a b". Only 0-9, a-z, A-Z and ., -, _ characters are allowed`)},
		"characters of patterns":        {egress(`{"toFQDNs":[{"matchPattern":"a b"}]}`), usual, since(19, `Invalid characters in MatchPattern: "a b". Only 0-9, a-z, A-Z and ., - and * characters are allowed`, `Invalid characters in MatchPattern: "a b". Only 0-9, a-z, A-Z and ., -, _ and * characters are allowed`)},
		"a long pattern":                {egress(`{"toFQDNs":[{"matchPattern":"` + long + `"}]}`), usual, since(19, valid, fmt.Sprintf("Invalid MatchPattern: %q. Must be <= 255 characters long.", long))},
		"20: authentication":            {spec(`"ingress":[{"fromEndpoints":[{}],"authentication":{"mode":"required"}}]`), usual, since(20, valid, fmt.Sprintf(auth, "ingress"))},
		"20: authentication, on":        {spec(`"ingress":[{"fromEndpoints":[{}],"authentication":{"mode":"required"}}]`), usual.With(policy.Authentication), in(valid, valid, valid, valid)},
		"20: beside another":            {egress(`{"toEntities":["mars"],"authentication":{"mode":"disabled"}}`), usual, since(20, "unsupported entity: mars", "unsupported entity: mars\n"+fmt.Sprintf(auth, "egress"))},
		"21: two rules":                 {`"specs":[{"endpointSelector":{},"egress":[{"toPorts":[{"ports":[{"port":"99999"}]}]}]},{"endpointSelector":{},"egress":[{"toEntities":["all"],"toCIDR":["10.0.0.0/8"]}]}]`, usual, since(18, "Unable to parse port: *", "unable to parse port: *\ncombining ToCIDR and ToEntities is not supported yet")},
		"23: ICMP":                      {egress(`{"icmps":[{"fields":[{"type":8}]}]}`), networkpolicy.Config{EnableL7Proxy: true, EnableICMPRules: true}.Features(), in(valid, valid, valid, valid)},
		"ICMP with ports":               {egress(`{"icmps":[{"fields":[{"type":8}]}],"toPorts":[{}]}`), usual, since(18, "The ICMPs block may only be present without ToPorts. Define a separate rule to use ToPorts.", "the ICMPs block may only be present without ToPorts. Define a separate rule to use ToPorts")},
		"nodes":                         {egress(`{"toNodes":[{}],"toPorts":[{"ports":[{"port":"x y"}]}]}`), usual, since(18, "Unable to parse port: *", nodes)},
		"nodes and another peer":        {spec(`"ingress":[{"fromNodes":[{"matchLabels":{"a b":""}}]}]`), usual, since(18, "invalid label selector: *", "invalid label selector: *\n"+nodes)},
		"clusterwide, peers before L7":  {`"spec":{"nodeSelector":{},"ingress":[{"fromEntities":["mars"],"toPorts":[{"ports":[{"port":"80","protocol":"TCP"}],"rules":{"http":[{}]}}]}]}`, usual, since(18, "L7 policy is not supported on host ingress yet", "unsupported entity: mars")},
		"the order: ports, then fields": {egress(`{"icmps":[{"fields":[{"type":8,"family":"x"}]}]}`), usual, in("wrong family: x", "wrong family: x", "wrong family: x", "wrong family: x")},
		"server names":                  {egress(`{"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}],"serverNames":[""]}]}`), usual, since(18, "Empty server name is not allowed", "empty server name is not allowed")},
		"Kafka is no field any more":    {egress(`{"toPorts":[{"ports":[{"port":"9092","protocol":"TCP"}],"rules":{"kafka":[{}],"http":[{}]}}]}`), usual, since(20, "multiple L7 protocol rule types specified in single rule", valid)},
		"nor are requirements":          {spec(`"ingress":[{"fromRequires":[{"matchLabels":{"a b":""}}]}]`), usual, since(19, "invalid label selector: *", valid)},
		"DNS rules without a port":      {egress(`{"toPorts":[{"rules":{"dns":[{"matchPattern":"*"}]}}]}`), usual, since(18, "Port 53 must be specified for DNS rules", "port 53 must be specified for DNS rules")},
		"a CIDR that is none":           {egress(`{"toCIDR":["x"]}`), usual, in("unable to parse CIDR: *", "unable to parse CIDR: *", "unable to parse CIDR: *", "unable to parse CIDR: *")},
		"a rule for nodes":              {`"spec":{"nodeSelector":{},"egress":[{"toEntities":["all"]}]}`, usual, in("rule cannot have NodeSelector", "rule cannot have NodeSelector", "rule cannot have NodeSelector", "rule cannot have NodeSelector")},
		"pods of another namespace":     {`"spec":{"endpointSelector":{"matchLabels":{"k8s:io.kubernetes.pod.namespace":"other"}},"egress":[{"toEntities":["all"]}]}`, usual, in("EndpointSelector is for the namespace other*", "EndpointSelector is for the namespace other*", "EndpointSelector is for the namespace other*", "EndpointSelector is for the namespace other*")},
		"pods of its own namespace":     {`"specs":[{"endpointSelector":{"matchLabels":{"io.kubernetes.pod.namespace":"default"}},"egress":[{"toEntities":["all"]}]}]`, usual, in(valid, valid, valid, valid)},
	} {
		of := metadata
		if strings.HasPrefix(name, "clusterwide") {
			of = strings.Replace(metadata, `"namespace":"default",`, "", 1)
		}
		p := decode(t, "{"+of+","+c.rules+"}")
		for i, r := range release.All() {
			texts, _ := p.Problems(c.on, r)
			got := strings.Join(texts, "\n")
			if !matches(got, c.want[i]) {
				t.Errorf("%s, in %s: %q, want %q", name, r, got, c.want[i])
			}
		}
	}
}

// Numbers 20 and 22 of the contract's policies.md; VALID-21, VALID-22, VALID-E8 and VALID-E9: options of agents, and kinds that they do not enforce.
func TestOptionsOfReleases(t *testing.T) {
	const (
		authenticated = `"spec":{"endpointSelector":{},"ingress":[{"fromEndpoints":[{}],"authentication":{"mode":"required"}}]}`
		off           = "mutual auth feature is disabled but an ingress auth rule is defined in policy"
	)
	w := newWorld(t)
	w.create("web", authenticated)
	wide := "wide-" + w.Namespace
	w.createIn(w.clusterwide, "CiliumClusterwideNetworkPolicy", wide, authenticated)
	o := w.startIn("1.20", "--mesh-auth-enabled=false", "--enable-cilium-clusterwide-network-policy=false")
	w.wantIn(w.policies, "web", "False", off)
	o.Stop()
	if c := w.condition(w.clusterwide, wide); c != nil {
		t.Errorf("a policy that agents do not enforce has the condition %v", c)
	}
	o = w.startIn("1.20", "--mesh-auth-enabled=true")
	w.wantIn(w.policies, "web", "True", succeeded)
	w.wantIn(w.clusterwide, wide, "True", succeeded)
	o.Stop()
	o = w.startIn("1.19", "--mesh-auth-enabled=false", "--enable-cilium-network-policy=false")
	w.create("other", authenticated)
	w.wantIn(w.policies, "other", "True", succeeded)
	o.Stop()
	for i, r := range release.All() {
		c := cluster.DefaultConfig
		for _, kinds := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
			c.Release, c.EnableCiliumNetworkPolicy, c.EnableCiliumClusterwideNetworkPolicy = r, kinds[0], kinds[1]
			if want := i == 0 || kinds[0] || kinds[1]; isNeeded(c) != want {
				t.Errorf("in %s with %v: the module is on: %v", r, kinds, isNeeded(c))
			}
		}
	}
}

// matches compares line by line; one that ends with a star is a beginning.
func matches(got, want string) bool {
	lines, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i, w := range wanted {
		if i >= len(lines) {
			return false
		}
		if begin, open := strings.CutSuffix(w, "*"); open && !strings.HasPrefix(lines[i], begin) || !open && lines[i] != w {
			return false
		}
	}
	return len(lines) >= len(wanted)
}
