// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/cells/ingress"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// world is a namespace with objects that refer to Secrets, and one for copies.
type world struct {
	*operatortest.Env
	copies string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Env: operatortest.NewEnv(t, clustertest.Shared(t), "CiliumEnvoyConfig", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy")}
	w.Clear(networkingv1.SchemeGroupVersion.WithResource("ingresses"), v2.CiliumNetworkPolicyResource, v2.CiliumClusterwideNetworkPolicyResource)
	w.CreateNamespace()
	w.copies = w.Namespace[max(0, len(w.Namespace)-50):] + "-copies"
	w.copies = strings.TrimLeft(w.copies, "-")
	_, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.copies}}, metav1.CreateOptions{})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// args serve Ingresses and copy their secrets.
func (w *world) args(more ...string) []string {
	return append([]string{
		"--enable-ingress-controller", "--kube-proxy-replacement=true", "--k8s-namespace=" + w.Namespace,
		"--ingress-secrets-namespace=" + w.copies, "--policy-secrets-namespace=" + w.copies, "--gateway-api-secrets-namespace=" + w.copies,
	}, more...)
}

func (w *world) start(more ...string) *operatortest.Operator {
	return operatortest.Start(w.T, cell.Set(ingress.Cell, Cell), w.Kubeconfig(), w.args(more...)...)
}

func (w *world) secret(name, value string, change ...func(*corev1.Secret)) {
	w.T.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "net"}, Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: "with the data", "owner": "net",
		}},
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte(value), "tls.key": []byte(value)},
	}
	for _, f := range change {
		f(s)
	}
	_, err := w.Core.CoreV1().Secrets(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) patchSecret(namespace, name, patch string) {
	w.T.Helper()
	_, err := w.Core.CoreV1().Secrets(namespace).Patch(w.T.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

func (w *world) remove(namespace, name string) {
	w.T.Helper()
	w.must(w.Core.CoreV1().Secrets(namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}))
}

func (w *world) ingress(name, secret string) {
	w.T.Helper()
	i := &networkingv1.Ingress{}
	w.must(yaml.UnmarshalStrict(fmt.Appendf(nil, `
metadata: {name: %s}
spec:
  ingressClassName: cilium
  tls: [{hosts: [%s.example.com], secretName: %s}]
  rules: [{host: %s.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}}]`,
		name, name, secret, name), i))
	_, err := w.Core.NetworkingV1().Ingresses(w.Namespace).Create(w.T.Context(), i, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) removeIngress(name string) {
	w.T.Helper()
	w.must(w.Core.NetworkingV1().Ingresses(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}))
}

// copy is the copy of a Secret, nil if there is none.
func (w *world) copy(name string) *corev1.Secret {
	w.T.Helper()
	s, err := w.Core.CoreV1().Secrets(w.copies).Get(w.T.Context(), w.Namespace+"-"+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return s
}

// awaitCopy waits for the copy of a Secret with a value.
func (w *world) awaitCopy(what, name, value string) {
	w.T.Helper()
	operatortest.Eventually(w.T, what, func() bool {
		s := w.copy(name)
		return s != nil && string(s.Data["tls.crt"]) == value
	})
}

func (w *world) awaitNone(what, name string) {
	w.T.Helper()
	operatortest.Eventually(w.T, what, func() bool { return w.copy(name) == nil })
}

func (w *world) awaitEvent(what, reason, about string) {
	w.T.Helper()
	operatortest.Eventually(w.T, what, func() bool {
		events, err := w.Core.CoreV1().Events(w.Namespace).List(w.T.Context(), metav1.ListOptions{})
		w.must(err)
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == reason && e.InvolvedObject.Name == about })
	})
}

// writes are the requests of operators that change Secrets.
func (w *world) writes() (all []string) {
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Resource == "secrets" && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			all = append(all, r.Verb+" "+r.Namespace+"/"+r.Name)
		}
	}
	return all
}

// as is the kubeconfig of a user with the permissions of docs/wire/secretsync.md: a ClusterRole, and a Role where copies are.
func (w *world) as(user string) string {
	w.T.Helper()
	kubeconfig := w.As(user,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses", "ingressclasses"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses/status"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services", "endpoints"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumenvoyconfigs"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	)
	name := user + "-" + w.Namespace
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "update", "patch", "delete"}}}
	_, err := w.Core.RbacV1().Roles(w.copies).Create(w.T.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.Core.RbacV1().RoleBindings(w.copies).Create(w.T.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	w.must(err)
	clustertest.AwaitAllowedIn(w.T, w.Core, name, w.copies, rules)
	return kubeconfig
}

// Number 18 of the contract's secret-sync.md; SEC-E1 to SEC-E4, SEC-E7, SEC-E12 and SEC-8, with the permissions that the duty asks for.
func TestIngress(t *testing.T) {
	w := newWorld(t)
	w.secret("shop-tls", "one")
	w.secret("other", "other")
	w.ingress("web", "shop-tls")
	o := operatortest.Start(t, cell.Set(ingress.Cell, Cell), w.as("skep"), w.args()...)
	w.awaitCopy("SEC-E1: the Secret is copied", "shop-tls", "one")
	s := w.copy("shop-tls")
	labels := map[string]string{
		"team": "net", "secretsync.cilium.io/owning-secret-namespace": w.Namespace, "secretsync.cilium.io/owning-secret-name": "shop-tls",
	}
	if !maps.Equal(s.Labels, labels) || s.Type != corev1.SecretTypeTLS || len(s.Data) != 2 || !maps.Equal(s.Annotations, map[string]string{"owner": "net"}) {
		t.Errorf("SEC-E1, SEC-8: %v %v %s %d", s.Labels, s.Annotations, s.Type, len(s.Data))
	}
	w.patchSecret(w.Namespace, "shop-tls", `{"data":{"tls.crt":"dHdv"}}`)
	w.awaitCopy("SEC-E2: the copy follows", "shop-tls", "two")
	w.patchSecret(w.copies, w.Namespace+"-shop-tls", `{"data":{"tls.crt":"eA==","more":"eA=="}}`)
	w.awaitCopy("SEC-E3: an edit is reverted", "shop-tls", "two")
	w.remove(w.copies, w.Namespace+"-shop-tls")
	w.awaitCopy("SEC-E3: a copy that is deleted is restored", "shop-tls", "two")
	if w.copy("other") != nil {
		t.Error("a Secret was copied that nothing refers to")
	}
	operatortest.Eventually(t, "the operator is healthy", func() bool { return o.Degraded("") == "" })
	o.Stop()

	// 18: the original copies the annotation that has the data, too.
	w.patchSecret(w.copies, w.Namespace+"-shop-tls", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`)
	left, before := w.copy("shop-tls"), len(w.writes())
	o = operatortest.Start(t, cell.Set(ingress.Cell, Cell), w.as("skep-2"), w.args()...)
	w.ingress("last", "other")
	w.awaitCopy("the operator runs", "other", "other")
	if after := w.writes()[before:]; len(after) != 1 {
		t.Errorf("SEC-E12: a restart writes %q", after)
	}
	if s := w.copy("shop-tls"); s.UID != left.UID || s.ResourceVersion != left.ResourceVersion {
		t.Error("18: the copy was written, or made again")
	}
	w.removeIngress("last")
	w.awaitNone("SEC-E4: without the Ingress there is no copy", "other")
	_, err := w.Core.NetworkingV1().Ingresses(w.Namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"ingressClassName":"nginx"}}`), metav1.PatchOptions{})
	w.must(err)
	w.awaitNone("SEC-E7: an Ingress of another class needs no copy", "shop-tls")
	_, err = w.Core.CoreV1().Secrets(w.Namespace).Get(t.Context(), "shop-tls", metav1.GetOptions{})
	w.must(err)
	w.CheckHealthy(o)
}

// Numbers 16 and 22 of the contract's secret-sync.md; SEC-E6, SEC-E8, SEC-E11, SEC-F5: the default secret, another type, a Secret beside the copies, a long name.
func TestOddSecrets(t *testing.T) {
	w := newWorld(t)
	opaque := func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }
	long := strings.Repeat("long", 20)
	w.secret("wild", "wild", func(s *corev1.Secret) { s.Immutable = new(bool); *s.Immutable = true })
	w.secret("retyped", "one", opaque)
	w.secret(long, "long")
	w.ingress("web", "retyped")
	w.ingress("far", long)
	o := w.start("--ingress-default-secret-namespace="+w.Namespace, "--ingress-default-secret-name=wild", "--ingress-default-lb-mode=shared", "--cilium-release=1.18")
	w.awaitCopy("SEC-E6: the default secret is copied", "wild", "wild")
	w.awaitCopy("the Secret is copied", "retyped", "one")
	w.awaitCopy("SEC-F5: a Secret with a long name is copied", long, "long")
	w.remove(w.Namespace, "retyped")
	w.secret("retyped", "two")
	w.awaitCopy("SEC-E8: the type is that of the new Secret", "retyped", "two")
	if s := w.copy("retyped"); s.Type != corev1.SecretTypeTLS {
		t.Errorf("SEC-E8: %s", s.Type)
	}
	if i, last := slices.Index(w.writes(), "delete "+w.copies+"/"+w.Namespace+"-retyped"), w.writes()[len(w.writes())-1]; i < 0 || last != "create "+w.copies+"/" {
		t.Errorf("16: the writes are %q", w.writes())
	}
	w.remove(w.Namespace, "wild")
	w.awaitNone("SEC-E6: the copy goes with the default secret", "wild")
	w.secret("wild", "second")
	w.awaitCopy("SEC-F3: a copy of an immutable Secret is replaced", "wild", "second")

	i := &networkingv1.Ingress{}
	w.must(yaml.Unmarshal(fmt.Appendf(nil, `{metadata: {name: inside}, spec: {ingressClassName: cilium, defaultBackend: {service: {name: front, port: {number: 80}}}, tls: [{hosts: [a.b], secretName: %s-wild}]}}`, w.Namespace), i))
	_, err := w.Core.NetworkingV1().Ingresses(w.copies).Create(t.Context(), i, metav1.CreateOptions{})
	w.must(err)
	w.removeIngress("far")
	w.awaitNone("SEC-F5: its copy is found by its whole name", long)
	list, err := w.Core.CoreV1().Secrets(w.copies).List(t.Context(), metav1.ListOptions{})
	w.must(err)
	if len(list.Items) != 2 {
		t.Errorf("SEC-E11: there are %d copies", len(list.Items))
	}
	w.CheckHealthy(o)
}

// Number 17 of the contract's secret-sync.md, but for one thing: copies are not looked at each hour, since a watch that breaks is begun again within
// minutes, and shows what was missed (K8S-11). SEC-E3.
func TestBrokenWatch(t *testing.T) {
	w := newWorld(t)
	w.secret("a", "a")
	w.ingress("web", "a")
	o := w.start()
	w.awaitCopy("it is copied", "a", "a")
	fails := w.Proxy.Answer(t, 500, clustertest.Match{Verbs: []string{"list", "watch"}, Resources: []string{"secrets"}})
	w.Proxy.CutWatches(t, clustertest.Match{Resources: []string{"secrets"}})
	operatortest.Eventually(t, "Secrets are not watched", func() bool { return fails.Hits(t) > 1 })
	w.remove(w.copies, w.Namespace+"-a")
	before := fails.Hits(t)
	operatortest.Eventually(t, "the operator has tried to watch Secrets", func() bool { return fails.Hits(t) > before })
	if w.copy("a") != nil {
		t.Error("the copy is back without a watch: the test shows nothing")
	}
	fails.Remove(t)
	w.awaitCopy("the copy is back", "a", "a")
	operatortest.Eventually(t, "health is well", func() bool { return o.Degraded("secretsync") == "" })
}

// served is the names of the secrets that the CiliumEnvoyConfig of an Ingress has, without the namespace of copies.
func (w *world) served(ingress string) (names []string) {
	w.T.Helper()
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(w.T.Context(), "cilium-ingress-"+w.Namespace+"-"+ingress, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	text, err := json.Marshal(u.Object["spec"])
	w.must(err)
	for _, found := range regexp.MustCompile(`"name":"`+w.copies+`/([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, found[1])
	}
	return names
}

// awaitServed waits until an Ingress is served with the copy of a Secret, and returns its name.
func (w *world) awaitServed(what, ingress, value string) (name string) {
	w.T.Helper()
	operatortest.Eventually(w.T, what, func() bool {
		names := w.served(ingress)
		if len(names) != 1 {
			return false
		}
		name = names[0]
		s, err := w.Core.CoreV1().Secrets(w.copies).Get(w.T.Context(), name, metav1.GetOptions{})
		return err == nil && string(s.Data["tls.crt"]) == value && s.Labels["secretsync.cilium.io/owning-secret-namespace"] == w.Namespace
	})
	return name
}

// SEC-14, SEC-E9, SEC-F1, SEC-F2 and SEC-5; numbers 2.1 and 2.2 of the contract's tenants.md: each Ingress is served with the Secret that it
// names, whichever object has the name of its copy, and not at all where there is none. Network policies keep the plain name.
func TestConflicts(t *testing.T) {
	w := newWorld(t)
	near := &world{Env: w.Env, copies: w.copies} // a-b/c and a/b-c have copies of one plain name
	near.Env = &operatortest.Env{T: w.T, Core: w.Core, Dynamic: w.Dynamic, Proxy: w.Proxy, Namespace: w.Namespace + "-b"}
	near.CreateNamespace()
	near.secret("c", "near")
	near.ingress("near", "c")
	near.secret("d", "near-d")
	near.ingress("near-d", "d")
	_, err := w.Core.CoreV1().Secrets(w.copies).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-taken"}, Data: map[string][]byte{"tls.crt": []byte("foreign")},
	}, metav1.CreateOptions{})
	w.must(err)
	before := w.copy("taken")
	o := w.start("--enable-policy-secrets-sync")
	w.awaitCopy("the first one has the name", "b-c", "near")
	w.awaitCopy("so has another", "b-d", "near-d")
	w.secret("taken", "one")
	w.secret("b-c", "far")
	w.ingress("web", "taken")
	w.ingress("web-2", "b-c")
	w.ingress("web-3", "absent")
	w.ingress("login", "b-d") // 2.1: a Secret that does not exist, and whose copy would have the name of another's
	if name := w.awaitServed("SEC-E9: the copy has another name", "web", "one"); name == w.Namespace+"-taken" {
		t.Errorf("SEC-E9: it is %s", name)
	}
	if name := w.awaitServed("SEC-F1: the copy of the other one has another name", "web-2", "far"); name == w.Namespace+"-b-c" {
		t.Errorf("SEC-F1: it is %s", name)
	}
	if name := near.awaitServed("SEC-F1: the first one is served with its own", "near", "near"); name != w.Namespace+"-b-c" {
		t.Errorf("SEC-F1: it is %s", name)
	}
	w.awaitEvent("SEC-5: an Event reports what is missing", "SecretNotFound", "web-3")
	w.awaitEvent("SEC-5: also where another has the name", "SecretNotFound", "login")
	operatortest.Eventually(t, "2.1: the key of another is not named", func() bool { return len(w.served("login")) == 1 })
	for _, name := range w.served("login") {
		if _, err := w.Core.CoreV1().Secrets(w.copies).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("2.1: login is served with %s: %v", name, err)
		}
	}
	if after := w.copy("taken"); after == nil || after.ResourceVersion != before.ResourceVersion {
		t.Error("SEC-E9: a Secret of another was changed")
	}
	w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, strings.ReplaceAll(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p}
spec:
  endpointSelector: {}
  ingress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: NS, name: b-c}}}]}]
`, "NS", w.Namespace))
	w.awaitEvent("SEC-F1: an Event of a policy reports the other one", "SecretNotCopied", "p")
	operatortest.Eventually(t, "SEC-F1: health shows it", func() bool { return strings.Contains(o.Degraded("secretsync"), "is not copied") })
	w.secret("absent", "late")
	w.awaitCopy("SEC-5: what was missing is copied", "absent", "late")

	// Another leader gives the same names, and writes nothing.
	served, writes := w.served("web-2"), len(w.writes())
	o.Stop()
	o = w.start("--enable-policy-secrets-sync")
	operatortest.Eventually(t, "the policy is looked at", func() bool { return strings.Contains(o.Degraded("secretsync"), "is not copied") })
	if again := w.served("web-2"); !slices.Equal(again, served) || len(w.writes()) != writes {
		t.Errorf("SEC-E12: it was %v, it is %v, and written is %v", served, again, w.writes()[writes:])
	}
	w.must(w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(w.Namespace).Delete(t.Context(), "p", metav1.DeleteOptions{}))
	operatortest.Eventually(t, "health is good", func() bool { return o.Degraded("secretsync") == "" })
}

// Numbers A13, A14 and A16 of the contract's secret-sync.md; SEC-E5 and SEC-F7: all references of policies, one copy for policies and
// Ingresses, and none under another name than the one that agents compute. Number 2.5 of the contract's tenants.md, K8S-18: what cannot be the name of a Secret is
// reported once, and not asked for.
func TestPolicies(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "unused"} {
		w.secret(name, name)
	}
	w.ingress("web", "a")
	policy := strings.ReplaceAll(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p}
spec:
  endpointSelector: {}
  ingress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: NS, name: a}}, originatingTLS: {secret: {namespace: NS, name: b}}}]}]
specs:
- endpointSelector: {}
  egress: [{toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{headerMatches: [{name: x, secret: {namespace: NS, name: c}}]}]}}]}]
- endpointSelector: {}
  egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], originatingTLS: {secret: {namespace: NS, name: e}}}]}]
- endpointSelector: {}
  egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: NS, name: x/y}}, originatingTLS: {secret: {namespace: NS, name: configmap/y}}}]}]
`, "NS", w.Namespace)
	clusterwide := strings.ReplaceAll(`
apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: NS}
spec:
  endpointSelector: {}
  egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: NS, name: d}}}]}]
  ingress: [{toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{headerMatches: [{name: x, secret: {namespace: NS, name: f}}]}]}}]}]
`, "NS", w.Namespace)
	w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, policy)
	w.apply(v2.CiliumClusterwideNetworkPolicyResource, "", clusterwide)
	o := w.start("--enable-policy-secrets-sync")
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		w.awaitCopy("SEC-F7: the Secret "+name+" is copied", name, name)
	}
	if all, err := w.Core.CoreV1().Secrets(w.copies).List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) != 6 {
		t.Errorf("there are %d copies: %v", len(all.Items), err)
	}
	missing := func() (messages []string) {
		events, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=SecretNotFound,involvedObject.name=p"})
		w.must(err)
		for _, e := range events.Items {
			messages = append(messages, fmt.Sprint(strings.ReplaceAll(e.Message, w.Namespace, "NS"), " ", e.Count))
		}
		slices.Sort(messages)
		return messages
	}
	operatortest.Eventually(t, "2.5: an Event reports each name that no Secret has", func() bool { return len(missing()) == 2 })
	w.removeIngress("web")
	w.must(w.Dynamic.Resource(v2.CiliumClusterwideNetworkPolicyResource).Delete(t.Context(), w.Namespace, metav1.DeleteOptions{}))
	w.awaitNone("the policy of the cluster is gone", "d")
	w.awaitNone("the policy of the cluster is gone", "f")
	if w.copy("a") == nil {
		t.Error("SEC-E5: the copy went with one of two references")
	}
	if got, want := missing(), []string{"Secret NS/configmap/y does not exist: TLS that needs it is not served 1", "Secret NS/x/y does not exist: TLS that needs it is not served 1"}; !slices.Equal(got, want) {
		t.Errorf("2.5: the Events %q, want %q", got, want)
	}
	for _, r := range w.Proxy.Requests(t, 0) {
		if path, err := url.PathUnescape(r.Path); err != nil || strings.Contains(path, "x/y") || strings.Contains(path, "configmap/y") {
			t.Errorf("2.5: the request %s %s: %v", r.Verb, r.Path, err)
		}
	}
	w.must(w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(w.Namespace).Delete(t.Context(), "p", metav1.DeleteOptions{}))
	for _, name := range []string{"a", "b", "c", "e"} {
		w.awaitNone("the policy is gone", name)
	}
	w.CheckHealthy(o)
}

// Number A15 of the contract's secret-sync.md: where Secrets of policies are not copied, those of Ingresses are, and stay.
func TestPoliciesAreNotSynchronized(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.secret(name, name)
	}
	w.ingress("web", "a")
	w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, strings.ReplaceAll(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p}
spec:
  endpointSelector: {}
  egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: NS, name: a}}, originatingTLS: {secret: {namespace: NS, name: b}}}]}]
`, "NS", w.Namespace))
	o := w.start("--enable-policy-secrets-sync")
	w.awaitCopy("the Secret of the policy is copied", "b", "b")
	w.awaitCopy("that of the Ingress is copied", "a", "a")
	o.Stop()
	w.remove(w.copies, w.Namespace+"-b")
	w.start("--enable-policy-secrets-sync=false")
	w.ingress("later", "c")
	w.awaitCopy("the Secret of the later Ingress is copied", "c", "c")
	if w.copy("a") == nil || w.copy("b") != nil {
		t.Errorf("the copies are %v and %v", w.copy("a"), w.copy("b"))
	}
}

func (w *world) apply(resource schema.GroupVersionResource, namespace, text string) {
	w.T.Helper()
	u := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(text), &u.Object))
	_, err := w.Dynamic.Resource(resource).Namespace(namespace).Create(w.T.Context(), u, metav1.CreateOptions{})
	w.must(err)
}
