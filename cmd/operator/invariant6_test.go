// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustertest"
)

// badThing is what may happen to an operator, and which duties it may affect.
type badThing struct {
	name string
	// before happens before the operator starts, and sets its arguments and
	// its user.
	before func(*scene)
	// while happens to the operator that works.
	while func(*scene)
	// hurts are the modules that may be degraded by it; the first one must be,
	// unless the thing is nothing that a duty suffers from.
	hurts []string
	// waits are those of them that only wait, and what they report to wait for.
	waits map[string]string
	// says is what the first one reports: the cause, and the remedy, if there is one
	// but to wait.
	says []string
	// spared is what still works meanwhile. The chatter always does, where the
	// operator leads.
	spared []func(*scene)
	// away is set if the operator cannot lead meanwhile.
	away bool
	// heal ends it; then nothing is degraded any more. Without it nothing does.
	heal func(*scene)
}

// scene is a world in which a bad thing happens.
type scene struct {
	*world
	proxy      *clustertest.Proxy
	kubeconfig string
	valid      string // a kubeconfig to go back to
	api        string // address of the health API
	env, args  []string
	o          *operator
}

func TestInvariant6OneBadThingHurtsOnlyItsDuty(t *testing.T) {
	for _, bad := range badThings {
		t.Run(bad.name, func(t *testing.T) { newScene(t).play(bad) })
	}
}

// needNodes are duties that can do nothing without CiliumNodes.
var needNodes = map[string]string{"ipam.clusterpool": "ciliumnodes", "nodegc": "ciliumnodes", "endpointgc": "ciliumnodes"}

var badThings = []badThing{
	{
		name:   "names taken",
		before: func(s *scene) { s.takeNames("CiliumCIDRGroup") },
		hurts:  []string{"crds.registration"},
		says:   []string{"ciliumcidrgroups.cilium.io", "its names are not accepted, another CRD has them", "CiliumCIDRGroup"},
		spared: []func(*scene){nodesAreServed, definitionsAreRegistered("CiliumNode", "CiliumIdentity")},
		heal:   func(s *scene) { s.deleteDefinition("stolen.cilium.io"); s.awaitDefinition("CiliumCIDRGroup") },
	},
	{
		name:   "needed names taken",
		before: func(s *scene) { s.takeNames("CiliumNode") },
		hurts:  []string{"crds.registration", "stream.ciliumio", "ipam.clusterpool", "nodegc", "endpointgc"},
		waits:  needNodes,
		says:   []string{"ciliumnodes.cilium.io", "its names are not accepted, another CRD has them", "CiliumNode"},
		spared: []func(*scene){definitionsAreRegistered("CiliumCIDRGroup", "CiliumIdentity")},
		heal:   func(s *scene) { s.deleteDefinition("stolen.cilium.io") },
	},
	{
		name: "definition missing",
		before: func(s *scene) {
			s.createDefinitions()
			s.deleteDefinition(nodeDefinition)
			s.args = append(s.args, "--skip-crd-creation")
		},
		hurts: []string{"stream.ciliumio", "ipam.clusterpool", "nodegc", "endpointgc"},
		waits: needNodes,
		says:  []string{"the CustomResourceDefinition ciliumnodes.cilium.io does not serve version v2 yet, waiting for it"},
		heal:  func(s *scene) { s.createDefinition("CiliumNode") },
	},
	{
		name:   "panics",
		before: func(s *scene) { s.env = append(s.env, panics+"=for the test") },
		hurts:  []string{"panics"},
		says:   []string{"times in a row; next try in", "as the test wants it: for the test"},
		spared: []func(*scene){nodesAreServed, definitionsAreRegistered("CiliumCIDRGroup")},
	},
	{
		name:   "no update of nodes",
		before: func(s *scene) { s.restrict("update", v2.CiliumNodeResource.GroupResource().String()) },
		hurts:  []string{"ipam.clusterpool"},
		says:   []string{"the role lacks", "update ciliumnodes.cilium.io"},
		spared: []func(*scene){definitionsAreRegistered("CiliumCIDRGroup")},
	},
	{
		name: "no create of kinds",
		before: func(s *scene) {
			s.createDefinitions()
			s.deleteDefinition("ciliumcidrgroups.cilium.io")
			s.restrict("create", "customresourcedefinitions.apiextensions.k8s.io")
		},
		hurts:  []string{"crds.registration"},
		says:   []string{"the role lacks", "create customresourcedefinitions.apiextensions.k8s.io"},
		spared: []func(*scene){nodesAreServed},
	},
	{
		name: "forbidden",
		while: func(s *scene) {
			s.proxy.Answer(s.t, http.StatusForbidden, clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}})
			s.addNode("forbidden")
		},
		hurts:  []string{"ipam.clusterpool"},
		says:   []string{"1 failing, forbidden among them", "orbidden"},
		spared: []func(*scene){definitionsAreRegistered("CiliumCIDRGroup")},
		heal:   func(s *scene) { s.proxy.Heal(s.t) },
	},
	{
		name: "bad objects",
		while: func(s *scene) {
			s.addNode("garbage", "not-a-cidr")
			s.addNode("wide", "10.0.0.0/4")
			s.addNode("empty", "")
		},
		hurts:  []string{"ipam.clusterpool"}, // that names the node
		says:   []string{"CiliumNode wide", "contains all of"},
		spared: []func(*scene){nodesAreServed, badNodesSayWhy("garbage", "wide")},
	},
	{
		name:   "port of health",
		before: func(s *scene) { s.occupy(s.api) },
		hurts:  []string{"health"},
		says:   []string{"not served; tried every 5s", "address already in use"},
		spared: []func(*scene){nodesAreServed},
	},
	{
		name: "port of metrics",
		before: func(s *scene) {
			s.args = append(s.args, "--enable-metrics", "--operator-prometheus-serve-addr="+s.occupy("127.0.0.1:0"))
		},
		hurts:  []string{"health"},
		says:   []string{"not served; tried every 5s", "address already in use"},
		spared: []func(*scene){nodesAreServed, isHealthy},
	},
	{
		name: "port of pprof",
		before: func(s *scene) {
			_, port, _ := net.SplitHostPort(s.occupy("127.0.0.1:0"))
			s.args = append(s.args, "--operator-pprof", "--operator-pprof-address=127.0.0.1", "--operator-pprof-port="+port)
		},
		hurts:  []string{"health"},
		says:   []string{"not served; tried every 5s", "address already in use"},
		spared: []func(*scene){nodesAreServed, isHealthy},
	},
	{
		name: "port of gops",
		before: func(s *scene) {
			_, port, _ := net.SplitHostPort(s.occupy("127.0.0.1:0"))
			s.args = append(s.args, "--enable-gops", "--gops-port="+port)
		},
		hurts:  []string{"health"},
		says:   []string{"not served; tried every 5s", "address already in use"},
		spared: []func(*scene){nodesAreServed, isHealthy},
	},
}

// everything is all that needs the API server, and says so while that is away.
var everything = []string{"k8s", "leader", "stream", "agents", "nodegc", "nodes", "lbipam", "endpointgc", "identitygc", "crds", "ipam", "networkpolicy", "policy", "chatter", "panics"}

// serverThings happen to the API server, or to the way there. None of them ends
// the process, and each ends by itself when the server is back.
var serverThings = []badThing{
	{
		name:   "refuses at start",
		before: func(s *scene) { s.proxy.Refuse(s.t) },
		says:   []string{"API server https://", "connection refused"},
		spared: []func(*scene){isUnhealthy("500 unable to reach the API server https://")},
		heal:   healProxy,
	},
	{
		name:   "silent at start",
		before: func(s *scene) { s.proxy.BlackHole(s.t) },
		says:   []string{"API server https://", "deadline exceeded"},
		spared: []func(*scene){isUnhealthy("500 unable to reach the API server https://")},
		heal:   healProxy,
	},
	{
		name:   "fails at start",
		before: func(s *scene) { s.proxy.Answer(s.t, http.StatusInternalServerError, clustertest.Match{}) },
		says:   []string{"API server https://", "500 Internal Server Error"},
		spared: []func(*scene){isUnhealthy("500 unable to reach the API server https://")},
		heal:   healProxy,
	},
	{
		name:   "expired cert",
		before: (*scene).expireCertificate,
		says:   []string{"API server https://", "the client certificate in ", "expired on 2020-02-02T02:02:02Z", "replace the file, it is read again"},
		heal:   (*scene).renewCertificate,
	},
	{
		name:   "refuses later",
		while:  func(s *scene) { s.proxy.Refuse(s.t); s.proxy.Cut(s.t) },
		says:   []string{"API server https://", "connection refused"},
		spared: []func(*scene){isUnhealthy("500 unable to reach the API server https://")},
		heal:   healProxy,
	},
	{
		name:   "silent later",
		while:  func(s *scene) { s.proxy.BlackHole(s.t) },
		says:   []string{"nothing good from the API server for"},
		spared: []func(*scene){isUnhealthy("500 unable to reach the API server https://")},
		heal:   healProxy,
	},
	{
		name:   "fails later",
		while:  func(s *scene) { s.proxy.Answer(s.t, http.StatusInternalServerError, clustertest.Match{}) },
		says:   []string{"API server https://", "500 Internal Server Error"},
		spared: []func(*scene){isUnhealthy("500 unable to reach the API server https://")},
		heal:   healProxy,
	},
	{
		name:   "stopped later",
		while:  func(s *scene) { s.StopAPIServer(s.t) },
		says:   []string{"API server https://"},
		spared: []func(*scene){isUnhealthy("500 unable to reach the API server https://")},
		heal:   func(s *scene) { s.StartAPIServer(s.t) },
	},
}

func healProxy(s *scene) { s.proxy.Heal(s.t) }

func TestInvariant6NothingEndsWhileTheServerIsAway(t *testing.T) {
	for _, bad := range serverThings {
		t.Run(bad.name, func(t *testing.T) {
			bad.away, bad.hurts = true, everything
			s := newScene(t)
			s.args = append(s.args, "--k8s-heartbeat-timeout=2s")
			s.play(bad)
		})
	}
}

func newScene(t *testing.T) *scene {
	w := newWorld(t)
	s := &scene{world: w, proxy: w.NewProxy(t), api: fmt.Sprint("127.0.0.1:", clustertest.FreePort(t)), env: []string{chatter + "=chatter", chatterPace + "=50ms"}}
	s.kubeconfig = s.proxy.UserKubeconfig(t, "bad-"+w.namespace, "system:masters")
	s.args = []string{
		"--k8s-namespace=" + w.namespace, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8",
		"--operator-api-serve-addr=" + s.api,
	}
	return s
}

// play lets a bad thing happen and checks which duties it affects.
func (s *scene) play(bad badThing) {
	s.t.Helper()
	if bad.before != nil {
		bad.before(s)
	}
	s.o = start(s.t, s.kubeconfig, s.env, s.args...)
	if !bad.away {
		s.o.leads()
	}
	if bad.while != nil {
		nodesAreServed(s)
		bad.while(s)
	}
	s.tells(bad)
	for _, works := range bad.spared {
		works(s)
	}
	if !bad.away {
		chatterGoesOn(s)
	}
	s.tells(bad)
	if bad.heal != nil {
		bad.heal(s)
		s.o.leads()
		s.o.until("nothing is degraded", func() bool { status, ok := s.o.status(); return ok && len(status.Degraded) == 0 })
		nodesAreServed(s)
		isHealthy(s)
	}
	if code := s.o.stop(); code != 0 {
		s.t.Errorf("exit code %d", code)
	}
}

// tells waits until the operator says what happened, and says it of those
// modules alone that are hurt.
func (s *scene) tells(bad badThing) {
	s.t.Helper()
	var last status
	defer func() {
		if s.t.Failed() {
			s.t.Logf("degraded are:\n%s", last.degraded())
		}
	}()
	s.o.until(fmt.Sprintf("only %v are degraded, and the first says %q", bad.hurts, bad.says), func() (ok bool) {
		if last, ok = s.o.status(); !ok {
			return false
		}
		others := slices.ContainsFunc(last.Degraded, func(d degradedPart) bool { return !isPartOf(d.ID, bad.hurts) })
		told := slices.ContainsFunc(last.Degraded, func(d degradedPart) bool {
			text := d.Message + ": " + d.Error
			return isPartOf(d.ID, bad.hurts[:min(1, len(bad.hurts))]) &&
				!slices.ContainsFunc(bad.says, func(part string) bool { return !strings.Contains(text, part) })
		})
		return !others && (told || len(bad.says) == 0) && wait(last.Degraded, bad.waits)
	})
}

// wait reports whether all modules say what they wait for.
func wait(degraded []degradedPart, modules map[string]string) bool {
	for module, what := range modules {
		if !slices.ContainsFunc(degraded, func(d degradedPart) bool {
			return isPartOf(d.ID, []string{module}) && strings.HasSuffix(d.ID, ".waits-for-"+what)
		}) {
			return false
		}
	}
	return true
}

type degradedPart = struct{ ID, Message, Error string }

func isPartOf(id string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return id == m || strings.HasPrefix(id, m+".") })
}

// What works while something else does not.

var sceneNodes int

func nodesAreServed(s *scene) {
	s.t.Helper()
	// A definition that was just made is served a moment later.
	eventually(s.t, "nodes can be listed", func() bool {
		_, err := s.dynamic.Resource(v2.CiliumNodeResource).List(s.t.Context(), metav1.ListOptions{})
		return err == nil
	})
	sceneNodes++
	s.served(fmt.Sprint("served-", sceneNodes))
}

func chatterGoesOn(s *scene) {
	s.t.Helper()
	n := func() string {
		cm, err := s.core.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), "chatter", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			s.t.Fatal(err)
		}
		if cm == nil {
			return ""
		}
		return cm.Data["n"]
	}
	first := n()
	s.o.until("the chatter goes on", func() bool { return n() != first })
}

func isHealthy(s *scene) {
	s.t.Helper()
	s.o.until("it is healthy", func() bool { return probe(s.api) == "200 ok" })
}

func isUnhealthy(answer string) func(*scene) {
	return func(s *scene) {
		s.t.Helper()
		s.o.until("it is unhealthy", func() bool { return strings.HasPrefix(probe(s.api), answer) })
	}
}

func definitionsAreRegistered(kinds ...string) func(*scene) {
	return func(s *scene) {
		s.t.Helper()
		for _, kind := range kinds {
			s.awaitDefinition(kind)
		}
	}
}

func badNodesSayWhy(names ...string) func(*scene) {
	return func(s *scene) {
		s.t.Helper()
		s.o.until(fmt.Sprintf("nodes %v have an error", names), func() bool {
			nodes := s.nodes()
			return !slices.ContainsFunc(names, func(n string) bool { return nodeError(nodes[n]) == "" })
		})
	}
}

// probe is what the health API answers, in one line.
func probe(address string) string {
	client := http.Client{Timeout: 3 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + address + "/healthz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var body [512]byte
	n, _ := resp.Body.Read(body[:])
	return fmt.Sprint(resp.StatusCode, " ", string(body[:n]))
}

// What happens to definitions.

const nodeDefinition = "ciliumnodes.cilium.io"

var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

func definitionName(t *testing.T, kind string) string {
	t.Helper()
	k, ok := api.KindNamed(kind)
	if !ok {
		t.Fatalf("there is no kind %s", kind)
	}
	return k.CRDName()
}

// takeNames gives the names of a kind to another CRD.
func (s *scene) takeNames(kind string) {
	s.t.Helper()
	s.deleteDefinition(definitionName(s.t, kind))
	s.create(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "stolen.cilium.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "cilium.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "stolen", Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v2", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	})
	s.t.Cleanup(func() { s.deleteDefinition("stolen.cilium.io") })
	eventually(s.t, "the names are taken", func() bool { return s.serves("stolen.cilium.io") })
}

// createDefinitions creates the definitions that are not there.
func (s *scene) createDefinitions() {
	s.t.Helper()
	for _, k := range api.Kinds() {
		if !s.serves(k.CRDName()) {
			s.createDefinition(k.Name)
		}
	}
}

// createDefinition creates a definition as the operator would.
func (s *scene) createDefinition(kind string) {
	s.t.Helper()
	k, _ := api.KindNamed(kind)
	crd, err := k.CRD(release.Newest().Edition())
	if err != nil {
		s.t.Fatal(err)
	}
	s.create(crd)
	s.awaitDefinition(kind)
}

func (s *scene) create(crd *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		s.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(apiextensionsv1.SchemeGroupVersion.String())
	u.SetKind("CustomResourceDefinition")
	if _, err := s.dynamic.Resource(definitions).Create(s.t.Context(), u, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// deleteDefinition deletes a definition, if it is there, and waits until it is
// gone. It works in cleanups, too.
func (w *world) deleteDefinition(name string) {
	w.t.Helper()
	ctx, all := context.WithoutCancel(w.t.Context()), w.dynamic.Resource(definitions)
	before, err := all.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = all.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(before.GetUID()))})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	eventually(w.t, name+" is gone", func() bool { // an operator may have made another
		now, err := all.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && before != nil && now.GetUID() != before.GetUID()
	})
}

func (w *world) awaitDefinition(kind string) {
	w.t.Helper()
	eventually(w.t, kind+" is registered", func() bool { return w.serves(definitionName(w.t, kind)) })
}

// serves reports whether a definition is there and can be used.
func (w *world) serves(name string) bool {
	w.t.Helper()
	u, err := w.dynamic.Resource(definitions).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// restrict runs the operator as a user that has the least role that it prints,
// without a verb.
func (s *scene) restrict(verb, resource string) {
	s.t.Helper()
	user := s.namespace
	role := s.leastRole(user, s.args...)
	lacks := false
	for i, rule := range role.Rules {
		if slices.Contains(rule.APIGroups, groupOf(resource)) && slices.Contains(rule.Resources, resourceOf(resource)) && slices.Contains(rule.Verbs, verb) {
			others := rule.DeepCopy() // other resources of the rule keep the verb
			others.Resources = slices.DeleteFunc(others.Resources, func(r string) bool { return r == resourceOf(resource) })
			if len(others.Resources) > 0 {
				role.Rules = append(role.Rules, *others)
			}
			role.Rules[i].Resources = []string{resourceOf(resource)}
			role.Rules[i].Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return v == verb })
			lacks = true
		}
	}
	if !lacks {
		s.t.Fatalf("the role has no %s of %s to lack", verb, resource)
	}
	// The chatter's, which declares nothing: it is no part of the operator.
	role.Rules = append(role.Rules, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update"},
	})
	s.bind(role, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	s.kubeconfig = s.proxy.UserKubeconfig(s.t, user)
}

func groupOf(resource string) string {
	_, group, _ := strings.Cut(resource, ".")
	return group
}

func resourceOf(resource string) string {
	name, _, _ := strings.Cut(resource, ".")
	return name
}

// leastRole is the role that an operator with these arguments says it needs.
func (w *world) leastRole(name string, args ...string) *rbacv1.ClusterRole {
	w.t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte(output(w.t, append([]string{"rbac", "--role-name=" + name}, args...)...)), role); err != nil {
		w.t.Fatal(err)
	}
	return role
}

// bind creates a role and binds it to a subject until the test ends.
func (w *world) bind(role *rbacv1.ClusterRole, subject rbacv1.Subject) {
	w.t.Helper()
	roles := w.core.RbacV1()
	if _, err := roles.ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{subject},
	}
	if _, err := roles.ClusterRoleBindings().Create(w.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = roles.ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
		_ = roles.ClusterRoleBindings().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
	})
	user := subject.Name
	if subject.Kind == rbacv1.ServiceAccountKind {
		user = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	}
	clustertest.AwaitAllowed(w.t, w.core, user, role.Rules)
}

// occupy takes an address until the test ends.
func (s *scene) occupy(address string) string {
	s.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// expireCertificate gives the operator a kubeconfig that names files with a
// certificate that is no longer valid.
func (s *scene) expireCertificate() {
	s.t.Helper()
	certificate, key := selfSigned(s.t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "late", Organization: []string{"system:masters"}},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2020, 2, 2, 2, 2, 2, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	config := s.loadKubeconfig()
	user := userOf(config)
	dir := s.t.TempDir()
	user.ClientCertificate, user.ClientKey = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	user.ClientCertificateData, user.ClientKeyData = nil, nil
	s.write(user.ClientCertificate, certificate)
	s.write(user.ClientKey, key)
	s.valid = s.kubeconfig
	s.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, s.kubeconfig); err != nil {
		s.t.Fatal(err)
	}
}

// selfSigned is a certificate by itself, and its key, as PEM.
func selfSigned(t *testing.T, leaf *x509.Certificate) (certificate, private []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// renewCertificate puts a certificate that is valid into the files.
func (s *scene) renewCertificate() {
	s.t.Helper()
	files := userOf(s.loadKubeconfig())
	s.kubeconfig = s.valid
	valid := userOf(s.loadKubeconfig())
	s.write(files.ClientKey, valid.ClientKeyData)
	s.write(files.ClientCertificate, valid.ClientCertificateData)
}

func (s *scene) loadKubeconfig() *clientcmdapi.Config {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	return config
}

func userOf(c *clientcmdapi.Config) *clientcmdapi.AuthInfo {
	return c.AuthInfos[c.Contexts[c.CurrentContext].AuthInfo]
}

func (s *scene) write(path string, data []byte) {
	s.t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// What a user may have got wrong ends the start with code 1, and with a line for
// each mistake that names what was given and what is wrong with it.
func TestInvariant6MalformedInputIsNamed(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := func(name, cluster, user string) string {
		return file(name, "apiVersion: v1\nkind: Config\ncurrent-context: x\n"+
			"clusters: [{name: c, cluster: {"+cluster+"}}]\nusers: [{name: u, user: {"+user+"}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n")
	}
	const server = `server: "https://127.0.0.1:1"`
	tests := map[string]struct {
		args []string
		env  []string
		says []string // by line
	}{
		"kubeconfig is absent": {
			args: []string{"--k8s-kubeconfig-path=" + dir + "/absent"},
			says: []string{`--k8s-kubeconfig-path="` + dir + `/absent" (flag): reading ` + dir + `/absent: stat ` + dir + `/absent: no such file or directory`},
		},
		"kubeconfig is a directory": {
			args: []string{"--k8s-kubeconfig-path=" + dir},
			says: []string{`: is a directory`},
		},
		"kubeconfig is no YAML": {
			args: []string{"--k8s-kubeconfig-path=" + file("no-yaml", "clusters: [")},
			says: []string{dir + `/no-yaml": yaml: line 1: `},
		},
		"kubeconfig is empty": {
			args: []string{"--k8s-kubeconfig-path=" + file("empty", "")},
			says: []string{dir + "/empty names no cluster"},
		},
		"kubeconfig has no certificate of an authority": {
			args: []string{"--k8s-kubeconfig-path=" + kubeconfig("no-ca", server+", certificate-authority-data: bm9uc2Vuc2U=", "")},
			says: []string{dir + `/no-ca" (flag): reading certificates: `},
		},
		"kubeconfig has no client certificate": {
			args: []string{"--k8s-kubeconfig-path=" + kubeconfig("no-cert", server, "client-certificate-data: bm9uc2Vuc2U=, client-key-data: bm9uc2Vuc2U=")},
			says: []string{dir + `/no-cert" (flag): reading certificates: tls: failed to find any PEM data in certificate input`},
		},
		"kubeconfig names absent files": {
			args: []string{"--k8s-kubeconfig-path=" + kubeconfig("no-files", server, "client-certificate: absent.crt, client-key: absent.key")},
			says: []string{"unable to read client-cert " + dir + "/absent.crt"},
		},
		"flag of another type": {
			args: []string{"--cluster-id=abc"},
			says: []string{`--cluster-id="abc" (flag): must be a whole number from 0 to 4294967295`},
		},
		"two flags of other types": {
			args: []string{"--cluster-id=abc", "--enable-ipv4=maybe"},
			says: []string{`2 problems in the configuration:`, `--cluster-id="abc" (flag)`, `--enable-ipv4="maybe" (flag): must be true or false`},
		},
		"flag out of range": {
			args: []string{"--cluster-pool-ipv4-mask-size=99"},
			says: []string{`--cluster-pool-ipv4-mask-size="99" (flag)`},
		},
		"IPAM mode that is none": {
			args: []string{"--ipam=eks", "--k8s-api-server=127.0.0.1:1"},
			says: []string{`2 problems in the configuration:`, `--ipam="eks" (flag): must be one of`, `--ipam="eks" (flag)`},
		},
		"flag that is unknown": {
			args: []string{"--clutser-id=1"},
			says: []string{"unknown flag --clutser-id; did you mean cluster-id?"},
		},
		"flag without its value": {
			args: []string{"--cluster-id"},
			says: []string{"flag needs an argument: --cluster-id"},
		},
		"command that is unknown": {
			args: []string{"frobnicate"},
			says: []string{`there is no command "frobnicate"`},
		},
		"environment": {
			env:  []string{"CILIUM_CLUSTER_ID=abc"},
			says: []string{`--cluster-id="abc" (environment CILIUM_CLUSTER_ID): must be a whole number`},
		},
		"config file is absent": {
			args: []string{"--config=" + dir + "/absent.yaml"},
			says: []string{"open " + dir + "/absent.yaml: no such file or directory"},
		},
		"config file is no YAML": {
			args: []string{"--config=" + file("no-yaml.yaml", "a: [")},
			says: []string{"yaml: line 1: "},
		},
		"config file is a list": {
			args: []string{"--config=" + file("list.yaml", "- a\n")},
			says: []string{"line 1: must be a mapping of keys to values"},
		},
		"config file has a value of another type": {
			args: []string{"--config=" + file("type.yaml", "\nenable-ipv6: false\ncluster-pool-ipv4-cidr: 10.0.0.0/8\ncluster-id: {a: b}\n")},
			says: []string{dir + "/type.yaml:4): must be a single value, not a mapping"},
		},
		"config directory is absent": {
			args: []string{"--config-dir=" + dir + "/absent"},
			says: []string{"Non-existent configuration directory " + dir + "/absent"},
		},
		"config directory is a file": {
			args: []string{"--config-dir=" + file("no-dir", "")},
			says: []string{dir + "/no-dir: not a directory"},
		},
		"config directory has a value of another type": {
			args: []string{"--config-dir=" + filepath.Dir(file("map/cluster-id", strings.Repeat("abc\x00", 1<<16)))},
			says: []string{`Incorrect config-map flag value: --cluster-id="abc\x00abc`},
		},
	}
	names, looks := slices.Sorted(maps.Keys(tests)), []look{}
	for _, name := range names {
		args := append([]string{"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--operator-api-serve-addr=127.0.0.1:0"}, tests[name].args...)
		looks = append(looks, look{Args: args, Env: append(tests[name].env, "KUBERNETES_SERVICE_HOST=")})
	}
	for i, l := range take(t, looks...) {
		t.Run(names[i], func(t *testing.T) {
			says := tests[names[i]].says
			if l.Code != 1 {
				t.Errorf("exit code %d", l.Code)
			}
			lines := strings.Split(strings.TrimSuffix(l.Stderr, "\n"), "\n")
			if len(lines) != len(says) || !strings.HasPrefix(l.Stderr, "Error: ") || len(l.Stderr) > 1000 {
				t.Fatalf("it says, in %d lines and not %d:\n%.2000s", len(lines), len(says), l.Stderr)
			}
			for i, want := range says {
				if !strings.Contains(lines[i], want) {
					t.Errorf("got  %s\nwant %s", lines[i], want)
				}
			}
		})
	}
}
