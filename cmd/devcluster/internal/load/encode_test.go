// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	ciliumv2 "github.com/skep-operator/skep/resources/api/v2"
)

func encodeAll(t *testing.T, opts Options) map[string][]byte {
	t.Helper()
	p, err := newPlan(opts)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEncoder()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, ph := range p.phases(false) {
		for i := range ph.count {
			key, value, err := e.encode(ph.item(i))
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := all[key]; ok {
				t.Errorf("two objects have the key %s", key)
			}
			all[key] = value
		}
	}
	return all
}

var few = Options{Size: Size{Nodes: 3, Pods: 60}, Seed: 1, Converged: true}

func TestKeysAreTheServers(t *testing.T) {
	prefixes := map[string]int{}
	for key := range encodeAll(t, few) {
		parts := strings.Split(key, "/")
		n := 3
		if parts[2] == "cilium.io" || parts[2] == "services" {
			n = 4
		}
		prefixes[strings.Join(parts[:n], "/")]++
	}
	for prefix, want := range map[string]int{
		"/registry/minions": 3, "/registry/pods": 60, "/registry/namespaces": 3, "/registry/deployments": 4, "/registry/replicasets": 4,
		"/registry/daemonsets": 2, "/registry/services/specs": 2, "/registry/endpointslices": 2,
		"/registry/cilium.io/ciliumnodes": 3, "/registry/cilium.io/ciliumendpoints": 60, "/registry/cilium.io/ciliumidentities": 6,
	} {
		if prefixes[prefix] != want {
			t.Errorf("%d keys below %s, want %d", prefixes[prefix], prefix, want)
		}
	}
}

// TestStoredPodsDecode reads what is written the way the API server does. That
// it is also what the API server would write is tested against one, in
// resources/clustertest.
func TestStoredPodsDecode(t *testing.T) {
	for key, value := range encodeAll(t, few) {
		if !strings.HasPrefix(key, "/registry/pods/") {
			continue
		}
		if !bytes.HasPrefix(value, []byte("k8s\x00")) {
			t.Fatalf("%s is not in the protobuf envelope: %q", key, value[:10])
		}
		obj, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		pod := obj.(*corev1.Pod)
		if !strings.HasSuffix(key, pod.Namespace+"/"+pod.Name) || pod.ResourceVersion != "" || pod.UID == "" {
			t.Errorf("%s holds %s/%s, revision %q, UID %q", key, pod.Namespace, pod.Name, pod.ResourceVersion, pod.UID)
		}
		managers := []string{}
		for _, entry := range pod.ManagedFields {
			managers = append(managers, entry.Manager+"/"+entry.Subresource)
			fields := entry.FieldsV1.GetRawString()
			if entry.Subresource == "status" && !strings.Contains(fields, pod.Status.PodIP) {
				t.Errorf("%s: the fields of its status do not name its address: %s", key, fields)
			}
			if entry.Subresource == "" && !strings.Contains(fields, string(pod.OwnerReferences[0].UID)) {
				t.Errorf("%s: its fields do not name its owner: %s", key, fields)
			}
		}
		if !slices.Equal(managers, []string{"kube-controller-manager/", "kubelet/status"}) {
			t.Errorf("%s has the managers %v", key, managers)
		}
		if pod.Spec.DeprecatedServiceAccount != pod.Spec.ServiceAccountName || pod.Spec.SchedulerName == "" {
			t.Errorf("%s lacks defaults", key)
		}
	}
}

func TestStoredCustomResources(t *testing.T) {
	for key, value := range encodeAll(t, few) {
		if !strings.HasPrefix(key, "/registry/cilium.io/ciliumendpoints/") {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(value))
		decoder.DisallowUnknownFields()
		var endpoint ciliumv2.CiliumEndpoint
		if err := decoder.Decode(&endpoint); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if endpoint.Kind != "CiliumEndpoint" || endpoint.APIVersion != "cilium.io/v2" || endpoint.Status.Identity.ID == 0 ||
			len(endpoint.Status.NamedPorts) != 3 || len(endpoint.ManagedFields) != 1 {
			t.Errorf("%s holds %s", key, value)
		}
		if !bytes.HasSuffix(value, []byte("}\n")) {
			t.Errorf("%s does not end as the server ends it", key)
		}
	}
}

func TestEncodingIsStable(t *testing.T) {
	first, again := encodeAll(t, few), encodeAll(t, few)
	for key, value := range first {
		if !bytes.Equal(value, again[key]) {
			t.Errorf("%s has other bytes the second time", key)
		}
	}
}

func BenchmarkEncodePod(b *testing.B) {
	p, err := newPlan(Options{Size: Sizes["S"], Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	e, err := newEncoder()
	if err != nil {
		b.Fatal(err)
	}
	bytes, i := 0, 0
	for b.Loop() {
		_, value, err := e.encode(p.pod(&p.workloads[i%len(p.workloads)], 0))
		if err != nil {
			b.Fatal(err)
		}
		bytes += len(value)
		i++
	}
	b.ReportMetric(float64(bytes)/float64(b.N), "stored-B/pod")
}
