// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/referencetest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// takeovers are clusters that an original of 1.20 has left, and what is written there at the switch. Nothing is right for nearly all
// objects; a write has its reason in docs/wire.
var takeovers = []struct {
	name   string
	files  []string
	config map[string]string // beside that of the chart
	writes map[string]string // "update gateways/status gw/a": why
}{
	{
		name: "all duties",
		files: []string{
			"common", "l7-services", "nodes-cluster-pool", "gateway-plain", "gateway-https", "gateway-longname", "gateway-l4", "gateway-passthrough",
			"gateway-classes", "gamma", "ingress", "lb-ipam", "node-ipam", "identities", "bgp", "policies",
		},
		writes: map[string]string{
			"update gatewayclasses/status cilium":                      versionOfClass,
			"update gatewayclasses/status deny":                        versionOfClass,
			"update gatewayclasses/status nodeport":                    versionOfClass,
			"update gatewayclasses/status lost":                        versionOfClass,
			"update gateways/status gw-https/secure":                   noCertificate,
			"update ciliumenvoyconfigs gw-https/cilium-gateway-secure": noCertificate,
			"update ciliumenvoyconfigs gw-pass/cilium-gateway-both":    "ENV-5: a filter chain for plain HTTP is there for a listener of plain HTTP alone",
			"update ciliumenvoyconfigs gw-plain/cilium-gateway-front":  "ENV-20: routes of the second port are served there, too",
			"update ciliumenvoyconfigs l7/cilium-envoy-lb-outside":     "L7S-3: requests stay with the endpoints of their port",
			"update ciliumenvoyconfigs gamma/api":                      "GW-48: it is the Service's, and does not go with one of its routes",
			"update httproutes/status gamma/lost":                      "GW-16: the author of a route whose Service does not exist is to know",
			"update httproutes/status gw-plain/wronghost":              "GW-17: a route without a host of the listener is not accepted",
			"patch ciliumloadbalancerippools/status clash":             "LBIP-10: a pool counts what is in use in its ranges, also by a pool that it overlaps",
			"patch ciliumnetworkpolicies/status pol/invalid":           "VALID-6: of peers that cannot be combined the names are in order; the original has them in any",
		},
	},
	{
		name: "pools", files: []string{"common", "nodes-multi-pool"}, config: map[string]string{"ipam": "multi-pool"},
		writes: map[string]string{
			"update gatewayclasses/status cilium":         versionOfClass,
			"patch ciliumloadbalancerippools/status blue": countsOfPool,
		},
	},
	{
		name: "a mesh where the oldest export decides", files: []string{"common", "mesh"}, config: withKeys(meshOptions, asOriginals),
		writes: map[string]string{
			"update gatewayclasses/status cilium":         versionOfClass,
			"patch ciliumloadbalancerippools/status blue": countsOfPool,
			"update serviceexports/status mesh/differ":    "MCS-23: the message of a conflict names the clusters",
			"update serviceexports/status mesh/web":       "MCS-23: the message of a conflict names the clusters",
		},
	},
	{
		name: "a mesh", files: []string{"common", "mesh"}, config: meshOptions,
		writes: map[string]string{
			"update gatewayclasses/status cilium":             versionOfClass,
			"patch ciliumloadbalancerippools/status blue":     countsOfPool,
			"update serviceexports/status mesh/differ":        ownDecides,
			"update serviceexports/status mesh/web":           ownDecides,
			"update serviceimports mesh/differ":               ownDecides,
			"update services mesh/derived-b0304crkeu":         ownDecides,
			"update serviceimports mesh/web":                  ownDecides,
			"update services mesh/derived-5rmhv20t4a":         ownDecides,
			"update endpointslices mesh/derived-5rmhv20t4a-1": ownDecides,
			"update serviceimports mesh/far":                  listedLabels,
			"update services mesh/derived-nvmhlsh8rn":         listedLabels,
		},
	},
	{
		name: "host network", files: []string{"common", "nodes-cluster-pool", "host-network"},
		config: map[string]string{"gateway-api-hostnetwork-enabled": "true", "ingress-hostnetwork-enabled": "true"},
		writes: map[string]string{
			"update gatewayclasses/status cilium":                  versionOfClass,
			"patch ciliumloadbalancerippools/status blue":          countsOfPool,
			"create ciliumenvoyconfigs kube-system/cilium-ingress": "ING-8: on the network of nodes a shared Ingress needs no Service of the chart, which is not there",
		},
	},
}

// Why there is a write.
const (
	versionOfClass = "GW-1: a class says whether the version of the Gateway API is supported, and which of its features are"
	noCertificate  = "GW-9: a listener whose certificate does not exist is not programmed, and no filter chain waits for it"
	countsOfPool   = "the pool of this state has addresses of Services that are in another cluster"
	ownDecides     = "MCS-47: the export of this cluster comes before others"
	listedLabels   = "MCS-48: labels of other clusters come by a list"
)

var meshOptions = map[string]string{"cluster-name": "alpha", "cluster-id": "1", "clustermesh-enable-endpoint-sync": "true", "clustermesh-enable-mcs-api": "true"}

// asOriginals are the options by which exports are merged as originals do.
var asOriginals = map[string]string{
	"clustermesh-mcs-api-oldest-decides": "true", "clustermesh-mcs-api-labels": "*", "clustermesh-mcs-api-annotations": "*",
}

func withKeys(all ...map[string]string) map[string]string {
	keys := map[string]string{}
	for _, some := range all {
		maps.Copy(keys, some)
	}
	return keys
}

// Number 31 of the contract's ingress.md, and 13 of its l7-service-lb.md: the switch from an original of 1.20 that was killed, under the roles of its chart, with the options that it had: what it left is right
// for its agents, and stays.
func TestSwitch(t *testing.T) {
	for _, test := range takeovers {
		t.Run(test.name, func(t *testing.T) {
			s := newTakeover(t, "1.20")
			maps.Copy(s.chart.config.Data, test.config)
			s.load(referencetest.Whole(t, "1.20", test.files...))
			s.mesh(referencetest.Keys(t, "1.20", test.files...))
			audit := s.Audit(t)
			o := s.chart.run(s.world)
			o.leads()
			written := s.rests(o, audit, 15*time.Second)
			for _, w := range slices.Sorted(maps.Keys(written)) {
				if test.writes[w] == "" {
					t.Errorf("it writes %d times: %s\n%s", written[w], w, s.diff(w))
				}
			}
			for w, why := range test.writes {
				if written[w] == 0 {
					t.Errorf("it does not %s, which is expected: %s", w, why)
				}
			}
			if code := o.stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// takeover is a cluster that an original has left.
type takeover struct {
	*world
	chart  *chart
	mapper meta.RESTMapper
	uids   map[string]string // by kind, namespace and name
	loaded map[string]*unstructured.Unstructured
	pem    map[string]string // what CERT and KEY stand for
	ports  int64             // node ports that its Services have
}

// readWholeChart is a chart with the roles and the options of all duties.
func readWholeChart(t *testing.T, of string) *chart {
	t.Helper()
	c := readChartOf(t, of, "gateway-ingress")
	for _, values := range []string{"operator-identities", "all-features", "clustermesh", "multi-pool"} {
		c.joinRoles(readChartOf(t, of, values))
	}
	maps.Copy(c.config.Data, map[string]string{
		"enable-node-ipam": "true", "enable-bgp-control-plane": "true", "enable-bgp-control-plane-status-report": "true",
		"enable-cilium-endpoint-slice": "true", "identity-management-mode": "operator", "bgp-secrets-namespace": "kube-system",
	})
	return c
}

// newTakeover has the definitions and the roles of an original of a release, and the roles of further charts.
func newTakeover(t *testing.T, of string, further ...*chart) *takeover {
	t.Helper()
	c := readWholeChart(t, of)
	for _, other := range further {
		c.joinRoles(other)
	}
	s := &takeover{
		world: newWorldIn(t, clustertest.Start(t)), chart: c,
		uids: map[string]string{}, loaded: map[string]*unstructured.Unstructured{}, pem: map[string]string{},
	}
	crds := operatortest.NewDefinitions(t, s.Cluster)
	for _, text := range referencetest.Definitions(t, of) {
		crds.Apply(labelledSchema(t, text, of))
	}
	crds.InstallGatewayAPI("experimental",
		"gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants", "tlsroutes", "tcproutes", "udproutes", "listenersets", "backendtlspolicies")
	s.define("ServiceExport", "ServiceImport")
	operatortest.Eventually(t, "discovery has the kinds that were defined last", func() bool {
		groups, err := restmapper.GetAPIGroupResources(s.core.Discovery())
		if err != nil {
			return false
		}
		s.mapper = restmapper.NewDiscoveryRESTMapper(groups)
		_, err = s.mapper.RESTMapping(schema.GroupKind{Group: "multicluster.x-k8s.io", Kind: "ServiceImport"}, "v1beta1")
		return err == nil
	})
	c.apply(s.world)
	certificate, key := selfSigned(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"*.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	})
	s.pem["CERT"], s.pem["KEY"] = string(certificate), string(key)
	return s
}

// labelledSchema is a definition with the label that an original of a release gives to it.
func labelledSchema(t *testing.T, text []byte, of string) []byte {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, u); err != nil {
		t.Fatal(err)
	}
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	nearest, _, err := release.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	labels["io.cilium.k8s.crd.schema.version"] = release.SchemaVersion.In(nearest)
	u.SetLabels(labels)
	if text, err = yaml.Marshal(u); err != nil {
		t.Fatal(err)
	}
	return text
}

// objects are those of the kind of an object, in its namespace.
func (s *takeover) objects(u *unstructured.Unstructured) (schema.GroupVersionResource, dynamic.ResourceInterface) {
	s.t.Helper()
	kind := u.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		s.t.Fatal(err)
	}
	if u.GetNamespace() != "" {
		return mapping.Resource, s.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	return mapping.Resource, s.dynamic.Resource(mapping.Resource)
}

// joinRoles adds the roles of another chart.
func (c *chart) joinRoles(other *chart) {
	for _, u := range other.objects {
		i := slices.IndexFunc(c.objects, func(has *unstructured.Unstructured) bool {
			return has.GetKind() == u.GetKind() && has.GetNamespace() == u.GetNamespace() && has.GetName() == u.GetName()
		})
		if i < 0 {
			c.objects = append(c.objects, u)
			continue
		}
		rules, _, _ := unstructured.NestedSlice(u.Object, "rules")
		if all, has, _ := unstructured.NestedSlice(c.objects[i].Object, "rules"); has {
			_ = unstructured.SetNestedSlice(c.objects[i].Object, append(all, rules...), "rules")
		}
	}
}

// load makes objects, each once those exist whose uids it has.
func (s *takeover) load(all []*unstructured.Unstructured) {
	s.t.Helper()
	for len(all) > 0 {
		var later []*unstructured.Unstructured
		for _, u := range all {
			if !s.resolve(u.Object) {
				later = append(later, u)
				continue
			}
			if u.GetKind() == "CiliumLoadBalancerIPPool" && u.GetName() == "clash" {
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // it and the one that it overlaps are of one second
			}
			s.create(u)
		}
		if len(later) == len(all) {
			s.t.Fatalf("%d objects refer to one that is not there, such as %s %s", len(later), later[0].GetKind(), nameOf(later[0]))
		}
		all = later
	}
}

func named(namespace, name string) string { return strings.TrimPrefix(namespace+"/"+name, "/") }

func nameOf(u *unstructured.Unstructured) string { return named(u.GetNamespace(), u.GetName()) }

const uidOf = "uid of "

// resolve puts uids, and certificates, in their places. It reports whether all are known.
func (s *takeover) resolve(value any) (known bool) {
	known = true
	put := func(has any, set func(string)) {
		text, is := has.(string)
		if !is {
			known = s.resolve(has) && known
			return
		}
		if of, is := strings.CutPrefix(text, uidOf); is {
			if known = known && s.uids[of] != ""; known {
				set(s.uids[of])
			}
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for key, has := range value {
			put(has, func(uid string) { value[key] = uid })
		}
	case []any:
		for i, has := range value {
			put(has, func(uid string) { value[i] = uid })
		}
	}
	return known
}

// create makes an object, with its status.
func (s *takeover) create(u *unstructured.Unstructured) {
	s.t.Helper()
	s.fill(u)
	s.renumber(u)
	resource, objects := s.objects(u)
	was := u.GetGeneration()
	made, err := objects.Create(s.t.Context(), u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) && slices.Contains([]string{"Namespace", "ServiceAccount"}, u.GetKind()) {
		made, err = objects.Get(s.t.Context(), u.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		s.t.Fatalf("%s %s: %v", u.GetKind(), nameOf(u), err)
	}
	if status, has := u.Object["status"].(map[string]any); has {
		observed(status, was, made.GetGeneration())
		made.Object["status"] = status
		if updated, err := objects.UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{}); err == nil {
			made = updated
		} else if !apierrors.IsNotFound(err) {
			s.t.Fatalf("the status of %s %s: %v", u.GetKind(), nameOf(u), err)
		}
	}
	s.uids[u.GetKind()+" "+nameOf(u)] = string(made.GetUID())
	s.loaded[resource.Resource+" "+nameOf(u)] = made
}

// lowestNodePort is the first of 86 that the API server gives only to those who ask for them, as long as it has others.
const lowestNodePort = 30000

// renumber gives a Service node ports that no Service before it can have: those of a state are from the whole range.
func (s *takeover) renumber(u *unstructured.Unstructured) {
	if u.GetKind() != "Service" {
		return
	}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	ports, _, _ := unstructured.NestedSlice(spec, "ports")
	next := func(of map[string]any, field string) {
		if of[field] != nil {
			of[field] = lowestNodePort + s.ports
			s.ports++
		}
	}
	next(spec, "healthCheckNodePort")
	for _, port := range ports {
		next(port.(map[string]any), "nodePort")
	}
	if len(ports) > 0 {
		spec["ports"] = ports
	}
	u.Object["spec"] = spec
}

// fill gives Secrets their data.
func (s *takeover) fill(u *unstructured.Unstructured) {
	if u.GetKind() != "Secret" {
		return
	}
	data := map[string]any{}
	for _, field := range []string{"data", "stringData"} {
		has, _, _ := unstructured.NestedStringMap(u.Object, field)
		for key, value := range has {
			if pem := s.pem[value]; pem != "" {
				value = pem
			}
			data[key] = base64.StdEncoding.EncodeToString([]byte(value))
		}
		delete(u.Object, field)
	}
	u.Object["data"] = data
}

// observed changes the generations that conditions are of.
func observed(value any, from, to int64) {
	switch value := value.(type) {
	case map[string]any:
		for key, has := range value {
			if n, is := has.(int64); is && key == "observedGeneration" && n == from {
				value[key] = to
			}
			observed(has, from, to)
		}
	case []any:
		for _, has := range value {
			observed(has, from, to)
		}
	}
}

// mesh serves the keys of another cluster, if there are any.
func (s *takeover) mesh(keys map[string]any) {
	s.t.Helper()
	if len(keys) == 0 {
		return
	}
	etcd := kvstoretest.Start(s.t, 1)
	for key, value := range keys {
		text, is := value.(string)
		if !is {
			encoded, err := json.Marshal(value)
			if err != nil {
				s.t.Fatal(err)
			}
			text = string(encoded)
		}
		etcd.Put(key, text, clientv3.NoLease)
	}
	folder := s.t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "beta"), fmt.Appendf(nil, "endpoints:\n- %s\n", etcd.Endpoints()[0]), 0o600); err != nil {
		s.t.Fatal(err)
	}
	container := s.chart.container()
	container.Env = append(container.Env, corev1.EnvVar{Name: "CILIUM_CLUSTERMESH_CONFIG", Value: folder})
}

// rests waits until the operator has written nothing for a time, and returns what it has written, and how often.
func (s *takeover) rests(o *operator, audit *clustertest.Audit, quiet time.Duration) map[string]int {
	s.t.Helper()
	if seedtest.Soak() {
		quiet = 90 * time.Second
	}
	written, since := map[string]int{}, time.Now()
	o.until("it writes nothing any more", func() bool {
		for _, e := range s.requests(audit, s.chart.user).writes() {
			if !e.Stored() {
				s.t.Errorf("it is refused to %s %s: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
			}
			resource := e.ObjectRef.Resource
			if e.ObjectRef.Subresource != "" {
				resource += "/" + e.ObjectRef.Subresource
			}
			written[fmt.Sprintf("%s %s %s", e.Verb, resource, named(e.ObjectRef.Namespace, e.ObjectRef.Name))]++
			since = time.Now()
		}
		return time.Since(since) > quiet && o.synced()
	})
	return written
}

// diff is what a write has changed of an object.
func (s *takeover) diff(write string) string {
	s.t.Helper()
	fields := strings.Fields(write)
	resource, _, _ := strings.Cut(fields[1], "/")
	was := s.loaded[resource+" "+fields[2]]
	if was == nil {
		return "it was not there"
	}
	_, objects := s.objects(was)
	now, err := objects.Get(s.t.Context(), was.GetName(), metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return cmp.Diff(referencetest.Content(was), referencetest.Content(now))
}
