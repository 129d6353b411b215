// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/cells/ingress"
	"github.com/skep-operator/skep/cells/secretsync"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Roles of namespaces: two tenants, and one with certificates that both may be granted.
const (
	older   = "older"
	younger = "younger"
	certs   = "certs"
)

// Each random set of objects is there twice: the older tenant alone, and both.
const (
	alone = "a"
	both  = "b"
)

// keyOf is a Secret, by the role of its namespace.
type keyOf struct{ in, name string }

// keyClaim is that an object of a tenant has a host, with a key or without TLS. An Ingress may read its own namespace, and has no kind.
type keyClaim struct {
	role, kind string
	of         keyOf
}

// keyGrant is a ReferenceGrant for a kind and a tenant. Without a name it is for all Secrets of the namespace.
type keyGrant struct{ in, kind, from, name string }

// keyTenants are the random objects of two tenants.
type keyTenants struct {
	*world
	*rand.Rand
	id       string
	suffixes map[string]string // of namespaces, by role
	secrets  map[keyOf]int     // the version of those that exist
	versions map[keyOf]int     // the last one
	grants   map[keyGrant]bool
	claims   map[string][]keyClaim // by host, the oldest first
	policies map[keyOf]bool        // what policies of the older tenant refer to
	may      map[string]map[string]bool
	was      map[string]string // of the older tenant's hosts, once nothing changes
	history  []string
}

func newKeyTenants(w *world, r *rand.Rand, id string) *keyTenants {
	k := &keyTenants{
		world: w, Rand: r, id: id, suffixes: map[string]string{}, secrets: map[keyOf]int{}, versions: map[keyOf]int{}, grants: map[keyGrant]bool{},
		claims: map[string][]keyClaim{}, policies: map[keyOf]bool{}, may: map[string]map[string]bool{}, was: map[string]string{},
	}
	suffixes := []string{"", "-p", "-p-q"} // x/p-s and x-p/s have copies of one plain name
	k.Shuffle(3, func(i, j int) { suffixes[i], suffixes[j] = suffixes[j], suffixes[i] })
	for i, role := range []string{older, younger, certs} {
		k.suffixes[role] = suffixes[i]
		for _, side := range k.sides(role) {
			_, err := w.Core.CoreV1().Namespaces().Create(w.T.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.namespaceOf(side, role)}}, metav1.CreateOptions{})
			w.must(err)
		}
	}
	return k
}

// sides are where objects of a role are.
func (*keyTenants) sides(role string) []string {
	if role == younger {
		return []string{both}
	}
	return []string{alone, both}
}

func (k *keyTenants) namespaceOf(side, role string) string { return k.id + side + k.suffixes[role] }

func (k *keyTenants) hostOf(side, name string) string { return name + "." + k.id + side + ".test" }

func (k *keyTenants) pick(all ...string) string { return all[k.IntN(len(all))] }

func (k *keyTenants) chance(in int) bool { return k.IntN(in) == 0 }

func (k *keyTenants) name() string {
	return k.pick("s", "s", "p-s", "p-s", "q-s", "p-q-s", "p-cfgmap-s")
}

// create creates an object of a role, in whose text @ROLE are namespaces and @HOST ends hosts.
func (k *keyTenants) create(role string, resource schema.GroupVersionResource, format string, args ...any) {
	k.T.Helper()
	text := fmt.Sprintf(format, args...)
	k.history = append(k.history, role+" makes "+text)
	for _, side := range k.sides(role) {
		k.apply(resource, strings.NewReplacer("@"+older, k.namespaceOf(side, older), "@"+younger, k.namespaceOf(side, younger), "@"+certs, k.namespaceOf(side, certs),
			"@HOST", k.id+side+".test").Replace(text))
	}
}

// claim notes that an object has a host. The older tenant is the first to claim one.
func (k *keyTenants) claim(host string, c keyClaim) { k.claims[host] = append(k.claims[host], c) }

// objects makes those of a tenant.
func (k *keyTenants) objects(role string) {
	k.T.Helper()
	k.ingress(role, "dedicated", role+"-d", role+"-e")
	k.ingress(role, "shared", role+"-s", "contested")
	other := map[string]string{older: younger, younger: older}[role]
	any := func() keyOf { return keyOf{k.pick(role, role, certs, certs, other), k.name()} }
	listener := func(kind, name, host string) string {
		of := any()
		k.claim(host, keyClaim{role, kind, of})
		return fmt.Sprintf(`{name: %s, port: 443, protocol: HTTPS, hostname: %s.@HOST, tls: {certificateRefs: [{name: %s, namespace: "@%s"}]}, allowedRoutes: {namespaces: {from: All}}}`, name, host, of.name, of.in)
	}
	k.create(role, gateways.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: "@%s"}, spec: {
		gatewayClassName: CLASS, allowedListeners: {namespaces: {from: All}}, listeners: [%s, %s]}}`, role, listener("Gateway", "one", role+"-g"), listener("Gateway", "two", role+"-h"))
	parent := k.pick(older, role)
	listeners := []string{listener("ListenerSet", "one", role+"-l")}
	if parent == older {
		listeners = append(listeners, listener("ListenerSet", "two", "contested-l"))
	}
	k.create(role, listenerSets.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {name: set, namespace: "@%s"}, spec: {
		parentRef: {name: edge, namespace: "@%s"}, listeners: [%s]}}`, role, parent, strings.Join(listeners, ", "))
	for _, of := range []string{"kind: Gateway, name: edge", "kind: ListenerSet, name: set"} {
		k.create(role, httpRoutes.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s, namespace: "@%s"}, spec: {
			parentRefs: [{group: gateway.networking.k8s.io, %s}], rules: [{backendRefs: [{name: back, port: 80}]}]}}`, strings.ToLower(strings.Fields(strings.Trim(of, ","))[3]), role, of)
	}
	k.policy(role, other)
	k.permit()
	if role == younger && k.chance(2) {
		_, err := k.Core.CoreV1().ConfigMaps(k.namespaceOf(both, role)).Create(k.T.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string]string{"ca.crt": testPEM}}, metav1.CreateOptions{})
		k.must(err)
		k.create(role, tlsPolicyKind.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {name: p, namespace: "@%s"}, spec: {
			targetRefs: [{group: "", kind: Service, name: back}], validation: {hostname: a.b, caCertificateRefs: [{group: "", kind: ConfigMap, name: s}]}}}`, role)
	}
}

// ingress makes an Ingress with two hosts. It may have no TLS for one, or the default key.
func (k *keyTenants) ingress(role, mode string, hosts ...string) {
	k.T.Helper()
	var rules, tls []string
	for i, host := range hosts {
		of := keyOf{role, k.name()}
		secret := ", secretName: " + of.name
		switch {
		case i == 1 && k.chance(4):
			of, secret = keyOf{}, ""
		case i == 1 && k.chance(4):
			of, secret = keyOf{name: "default"}, ""
			fallthrough
		default:
			tls = append(tls, fmt.Sprintf("{hosts: [%s.@HOST]%s}", host, secret))
		}
		k.claim(host, keyClaim{role: role, of: of})
		rules = append(rules, fmt.Sprintf("{host: %s.@HOST, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: back, port: {number: 80}}}}]}}", host))
	}
	k.create(role, networkingv1.SchemeGroupVersion.WithResource("ingresses"), `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: %s, namespace: "@%s", annotations: {
		ingress.cilium.io/loadbalancer-mode: %s}}, spec: {ingressClassName: cilium, rules: [%s], tls: [%s]}}`, mode, role, mode, strings.Join(rules, ", "), strings.Join(tls, ", "))
}

// policy makes a network policy with two Secrets. That of the younger tenant may refer to what is the older one's.
func (k *keyTenants) policy(role, other string) {
	k.T.Helper()
	ends, header := keyOf{role, k.name()}, keyOf{role, k.name()}
	if role == younger && k.chance(3) {
		header.in = other
	}
	if role == older {
		k.policies[ends], k.policies[header] = true, true
	}
	k.create(role, v2.CiliumNetworkPolicyResource, `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p, namespace: "@%s"}, spec: {endpointSelector: {}, egress: [
		{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: "@%s", name: %s}}}]},
		{toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{headerMatches: [{name: x, secret: {namespace: "@%s", name: %s}}]}]}}]}]}}`,
		role, ends.in, ends.name, header.in, header.name)
}

// change makes, replaces or deletes a Secret or a ReferenceGrant in a namespace of one of the roles.
func (k *keyTenants) change(roles ...string) {
	k.T.Helper()
	in := k.pick(roles...)
	if in != younger && k.chance(4) {
		k.changeGrant(in)
	} else {
		k.changeSecret(keyOf{in, k.name()})
	}
	k.permit()
}

func (k *keyTenants) changeSecret(of keyOf) {
	k.T.Helper()
	exists := k.secrets[of] > 0
	deletes, makes := exists, !exists || k.chance(2)
	for _, side := range k.sides(of.in) {
		if deletes {
			k.must(k.Core.CoreV1().Secrets(k.namespaceOf(side, of.in)).Delete(k.T.Context(), of.name, metav1.DeleteOptions{}))
		}
	}
	delete(k.secrets, of)
	if makes {
		k.makeSecret(of)
	} else {
		k.history = append(k.history, fmt.Sprintf("deleted is %v", of))
	}
}

func (k *keyTenants) makeSecret(of keyOf) {
	k.T.Helper()
	k.versions[of]++
	k.secrets[of] = k.versions[of]
	k.history = append(k.history, "made is "+k.key(of))
	for _, side := range k.sides(of.in) {
		_, err := k.Core.CoreV1().Secrets(k.namespaceOf(side, of.in)).Create(k.T.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: of.name}, Data: map[string][]byte{"tls.crt": []byte(testPEM), "tls.key": []byte(testPEM + k.key(of))},
		}, metav1.CreateOptions{})
		k.must(err)
	}
}

// changeGrant makes or deletes a ReferenceGrant.
func (k *keyTenants) changeGrant(in string) {
	k.T.Helper()
	from := younger
	if in == certs {
		from = k.pick(older, younger)
	}
	g := keyGrant{in, k.pick("Gateway", "ListenerSet"), from, k.pick("", "s", "p-s", "q-s")}
	name := strings.ToLower(strings.Trim(g.kind+"-"+g.from+"-"+g.name, "-"))
	if k.grants[g] {
		k.history = append(k.history, fmt.Sprintf("deleted is %v", g))
		for _, side := range k.sides(in) {
			k.must(k.Dynamic.Resource(grants.Resource()).Namespace(k.namespaceOf(side, in)).Delete(k.T.Context(), name, metav1.DeleteOptions{}))
		}
		delete(k.grants, g)
		return
	}
	k.grants[g] = true
	to := `{group: "", kind: Secret}`
	if g.name != "" {
		to = `{group: "", kind: Secret, name: ` + g.name + `}`
	}
	k.create(in, grants.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: ReferenceGrant, metadata: {name: %s, namespace: "@%s"}, spec: {
		from: [{group: gateway.networking.k8s.io, kind: %s, namespace: "@%s"}], to: [%s]}}`, name, in, g.kind, from, to)
}

// key is what the key of a Secret ends with, "" if it does not exist.
func (k *keyTenants) key(of keyOf) string {
	switch {
	case of.in == "" && of.name != "":
		return "default"
	case k.secrets[of] == 0:
		return ""
	}
	return fmt.Sprintf("%s %s/%s#%d", k.id, of.in, of.name, k.secrets[of])
}

// allowed is the key that an object may have a host served with, "" for none.
func (k *keyTenants) allowed(c keyClaim) string {
	if c.of.in == c.role || c.of.in == "" || k.grants[keyGrant{c.of.in, c.kind, c.role, ""}] || k.grants[keyGrant{c.of.in, c.kind, c.role, c.of.name}] {
		return k.key(c.of)
	}
	return ""
}

// permit adds the keys that hosts may be served with by now.
func (k *keyTenants) permit() {
	for host, all := range k.claims {
		if k.may[host] == nil {
			k.may[host] = map[string]bool{}
		}
		for _, c := range all {
			k.may[host][k.allowed(c)] = true
		}
	}
}

// keysAt are the keys of all hosts and copies at a time. isLong says that they were read so slowly that a copy may have gone meanwhile.
type keysAt struct {
	hosts, copies map[string]string
	isLong        bool
}

// keysSeen resolves all hosts of all configurations to keys, as agents do, by the names of secrets and the copies that have them.
func (w *world) keysSeen(copies string) keysAt {
	w.T.Helper()
	began := time.Now()
	list, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).List(w.T.Context(), metav1.ListOptions{})
	w.must(err)
	secrets, err := w.Core.CoreV1().Secrets(copies).List(w.T.Context(), metav1.ListOptions{})
	w.must(err)
	s := keysAt{map[string]string{}, map[string]string{}, time.Since(began) > time.Second}
	for _, c := range secrets.Items {
		s.copies[c.Name] = strings.TrimPrefix(string(c.Data["tls.key"]), testPEM)
	}
	for _, u := range list.Items {
		text, err := json.Marshal(u.Object["spec"])
		w.must(err)
		config, err := envoytest.VerifyJSON(text)
		w.must(err)
		for _, l := range config.Listeners {
			for _, chain := range l.FilterChains {
				for _, host := range chain.FilterChainMatch.GetServerNames() {
					context := &tlsv3.DownstreamTlsContext{}
					if chain.TransportSocket == nil {
						continue
					}
					w.must(chain.TransportSocket.GetTypedConfig().UnmarshalTo(context))
					var keys []string
					for _, name := range context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
						if key := s.copies[strings.TrimPrefix(name.Name, copies+"/")]; key != "" {
							keys = append(keys, key)
						}
					}
					slices.Sort(keys)
					s.hosts[host] = strings.Join(append(keys, strings.Fields(s.hosts[host])...), "+")
				}
			}
		}
	}
	return s
}

// check returns what is wrong: isFinal says that all changes are over, otherwise it is what is never right.
func (k *keyTenants) check(s keysAt, isFinal bool) (wrong []string) {
	for host, all := range k.claims {
		for _, side := range k.sides(all[0].role) {
			got, want := s.hosts[k.hostOf(side, host)], k.allowed(all[0])
			switch was, isKept := k.was[host]; {
			case got != "" && !k.may[host][got]:
				wrong = append(wrong, fmt.Sprintf("never: %s is served with %q, which is none of %q", k.hostOf(side, host), got, slices.Sorted(maps.Keys(k.may[host]))))
			case isKept && got != was && !s.isLong:
				wrong = append(wrong, fmt.Sprintf("never: %s is served with %q, and was with %q, and its owner has changed nothing", k.hostOf(side, host), got, was))
			case isFinal && got != want:
				wrong = append(wrong, fmt.Sprintf("%s is served with %q, want %q", k.hostOf(side, host), got, want))
			}
		}
	}
	for of := range k.policies {
		for _, side := range k.sides(older) {
			if k.hasTwins(of) {
				continue
			}
			switch got := s.copies[k.namespaceOf(side, of.in)+"-"+of.name]; {
			case got != "" && !strings.HasPrefix(got, fmt.Sprintf("%s %s/%s#", k.id, of.in, of.name)):
				wrong = append(wrong, fmt.Sprintf("never: a policy of %s that refers to %s has %q", k.namespaceOf(side, older), of.name, got))
			case isFinal && got != k.key(of):
				wrong = append(wrong, fmt.Sprintf("a policy of %s that refers to %s has %q, want %q", k.namespaceOf(side, older), of.name, got, k.key(of)))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// awaitPolicies waits until the operator has seen what the policies of the older tenant refer to: what comes now is younger.
func (k *keyTenants) awaitPolicies(o *operatortest.Operator) {
	k.T.Helper()
	for of := range k.policies {
		for _, side := range k.sides(older) {
			operatortest.Eventually(k.T, "the operator has seen what a policy refers to", func() bool {
				return len(o.Book.For("Secret", k.namespaceOf(side, of.in), of.name).Decisions) > 0
			})
		}
	}
}

// hasTwins reports whether other objects of the older tenant refer to a Secret whose copy has the plain name of another's: either has it.
func (k *keyTenants) hasTwins(of keyOf) bool {
	isTwin := func(other keyOf) bool {
		return other != of && k.suffixes[other.in]+"-"+other.name == k.suffixes[of.in]+"-"+of.name
	}
	for _, all := range k.claims {
		for _, c := range all {
			if c.role == older && isTwin(c.of) {
				return true
			}
		}
	}
	return slices.ContainsFunc(slices.Collect(maps.Keys(k.policies)), isTwin)
}

// keep notes what the hosts of the older tenant are served with, which changes of the younger one leave as it is.
func (k *keyTenants) keep() {
	k.may = map[string]map[string]bool{}
	k.permit()
	for host, all := range k.claims {
		if all[0].role == older {
			k.was[host] = k.allowed(all[0])
		}
	}
}

// release is called before the older tenant changes something.
func (k *keyTenants) release() { clear(k.was) }

// keyTest is a cluster with many sets of two tenants each.
type keyTest struct {
	*world
	copies string
	more   []string // options
	all    []*keyTenants
}

// start runs an operator that serves Ingresses and Gateways, and copies Secrets.
func (t *keyTest) start() *operatortest.Operator {
	t.T.Helper()
	args := t.args("--enable-ingress-controller", "--k8s-namespace="+t.Namespace, "--enable-policy-secrets-sync", "--ingress-secrets-namespace="+t.copies,
		"--gateway-api-secrets-namespace="+t.copies, "--policy-secrets-namespace="+t.copies, "--ingress-default-secret-namespace="+t.Namespace, "--ingress-default-secret-name=default")
	return operatortest.Start(t.T, cell.Set(Cell, ingress.Cell, secretsync.Cell), t.Kubeconfig(), append(args, t.more...)...)
}

// steady is how long keys have to stay as they are to be.
const steady = time.Second

// await waits until all keys are as they are to be, and stay so. What is never right is so at no time.
func (t *keyTest) await(what string) {
	t.T.Helper()
	began, since := time.Now(), time.Time{}
	var wrong []string
	defer func() {
		if t.T.Failed() {
			t.T.Logf("%s:\n%s", what, strings.Join(wrong, "\n"))
		}
	}()
	operatortest.Eventually(t.T, what+": each host has the key of its owner, and stays so", func() bool {
		s := t.keysSeen(t.copies)
		wrong = nil
		for _, k := range t.all {
			bad := k.check(s, true)
			if never := slices.IndexFunc(bad, func(text string) bool { return strings.HasPrefix(text, "never: ") }); never >= 0 {
				wrong = bad
				t.T.Fatalf("%s: %s\n%s", what, bad[never], strings.Join(k.history, "\n"))
			}
			wrong = append(wrong, bad...)
		}
		switch {
		case len(wrong) > 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > steady
	})
	t.T.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
	for _, k := range t.all {
		k.keep()
	}
}

// nextSecond waits until what is made is younger.
func nextSecond() { time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) } // the API server knows no shorter time

// SEC-14, SEC-24, GW-63, ENV-33, K2 of the contract's tenants.md, for random Secrets, Ingresses, Gateways, ListenerSets, ReferenceGrants and policies of two tenants: each host is served
// with the key of the Secret that its oldest owner names and may read, or with none: with the younger tenant as without it, and at no time with the key of a Secret
// that its owner may not read. Names of copies collide, Secrets come late, go, and come again, all is there before the operator or comes while it runs, and operators are replaced.
func TestYoungerChangesNoKeys(t *testing.T) {
	n, rounds := 3, 1
	if seedtest.Soak() {
		n, rounds = 8, 20
	}
	w := newWorld(t)
	operatortest.Define(t, clustertest.Shared(t).AdminConfig(t), "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy")
	w.Clear(v2.CiliumEnvoyConfigResource, v2.CiliumNetworkPolicyResource, v2.CiliumClusterwideNetworkPolicyResource)
	k := &keyTest{world: w, copies: w.namespace("copies")}
	_, err := w.Core.CoreV1().Secrets(w.Namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "default"}, Data: map[string][]byte{"tls.crt": []byte(testPEM), "tls.key": []byte(testPEM + "default")},
	}, metav1.CreateOptions{})
	w.must(err)
	r := rand.New(rand.NewPCG(seedtest.Seed(t), 1))
	if seedtest.Soak() && r.IntN(2) == 0 {
		k.more = []string{"--policy-secrets-own-namespace-only"}
	}
	for i := range 3 * n {
		k.all = append(k.all, newKeyTenants(w, r, fmt.Sprintf("k%s%d", w.Namespace[len(w.Namespace)-4:], i)))
	}
	first, second, third := k.all[:n], k.all[n:2*n], k.all[2*n:]
	each := func(all []*keyTenants, do func(*keyTenants)) {
		for _, k := range all {
			do(k)
		}
	}
	secrets := func(k *keyTenants) {
		for range 12 {
			k.change(older, younger, certs)
		}
	}
	olderMade, youngerMade := func(k *keyTenants) { k.objects(older) }, func(k *keyTenants) { k.objects(younger) }

	each(first, secrets)
	each(slices.Concat(first, second), olderMade)
	nextSecond()
	each(first, youngerMade)
	o := k.start()
	k.await("all were there before the operator, but some of the younger ones")
	for range rounds {
		each(second, (*keyTenants).release)
		each(third, (*keyTenants).release)
		if len(third[0].claims) == 0 {
			each(third, olderMade)
			each(third, func(k *keyTenants) { k.awaitPolicies(o) })
			nextSecond()
			each(slices.Concat(second, third), youngerMade)
			each(slices.Concat(second, third), secrets)
			k.await("objects and then Secrets have come")
		}
		each(k.all, func(k *keyTenants) {
			k.release()
			for range 4 {
				k.change(older, younger, certs)
			}
		})
		k.await("Secrets and grants have changed")
		o.Stop()
		each(k.all, func(k *keyTenants) {
			k.release()
			for range 4 {
				k.change(older, younger, certs)
			}
		})
		o = k.start()
		k.await("Secrets and grants have changed while no operator was there")
		changeYounger := func(k *keyTenants) {
			for range 2 {
				k.change(younger)
			}
		}
		each(k.all, changeYounger)
		o.Stop()
		each(k.all, changeYounger)
		o = k.start()
		k.await("the younger ones have changed Secrets, and an operator was replaced")
	}
}
