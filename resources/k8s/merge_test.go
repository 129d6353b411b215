// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
)

// vendorService has some of the fields of a Service, under names of its own.
type vendorService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Type  string       `json:"type,omitempty"`
		Ports []vendorPort `json:"ports,omitempty"`
		Size  int          `json:"size"`
	} `json:"spec"`
	Extra   vendorExtra  `json:"extra,omitzero"`
	Pointer *vendorExtra `json:"pointer,omitempty"`
	Status  corev1.ServiceStatus
	private int
}

type vendorPort struct {
	Name string `json:"name,omitempty"`
	Port int    `json:"port,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

type vendorExtra struct {
	A string `json:"a,omitempty"`
}

const rawService = `{
	"apiVersion": "v1", "kind": "Service",
	"metadata": {"name": "s", "resourceVersion": "7", "vendor": {"kept": 1}, "labels": {"a": "1"}, "finalizers": ["f"]},
	"spec": {"type": "LoadBalancer", "unknown": [1, 2.5, {"x": null}], "big": 9007199254740993,
		"ports": [{"name": "a", "port": 1, "unknown": "of a"}, {"name": "b", "port": 2, "unknown": "of b"}]},
	"extra": {"a": "1", "b": "unknown"}, "pointer": {"a": "1", "b": "unknown"},
	"empty": {}, "none": null
}`

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	content := map[string]any{}
	if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// changesBy is what an edit changes in an object, as path=value.
func changesBy[T any](t *testing.T, raw string, edit func(*T)) map[string]string {
	t.Helper()
	before := parse(t, raw)
	after, err := editTyped(before, func(obj *T) error { edit(obj); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parse(t, raw), before); diff != "" {
		t.Errorf("the edit has changed the object that was read: %s", diff)
	}
	all := map[string]string{}
	for _, c := range changesOf(before, after) {
		text, _ := json.Marshal(c.to)
		if all[c.path.String()] = string(text); c.removed {
			all[c.path.String()] = "removed"
		}
	}
	return all
}

// K13: fields that a type does not have, or that an edit leaves, stay as they are.
func TestATypedEditChangesWhatItSays(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*vendorService)
		want map[string]string
	}{
		"nothing":           {func(s *vendorService) { s.private = 1 }, nil},
		"the same":          {func(s *vendorService) { s.Spec.Type = "LoadBalancer" }, nil},
		"an empty list":     {func(s *vendorService) { s.OwnerReferences = []metav1.OwnerReference{} }, nil},
		"a field":           {func(s *vendorService) { s.Spec.Size = 3 }, map[string]string{"spec.size": "3"}},
		"a field cleared":   {func(s *vendorService) { s.Spec.Type = "" }, map[string]string{"spec.type": "removed"}},
		"a label":           {func(s *vendorService) { s.Labels["b"] = "2" }, map[string]string{"metadata.labels.b": `"2"`}},
		"all labels":        {func(s *vendorService) { s.Labels = nil }, map[string]string{"metadata.labels": "removed"}},
		"a struct cleared":  {func(s *vendorService) { s.Extra = vendorExtra{} }, map[string]string{"extra.a": "removed"}},
		"a pointer cleared": {func(s *vendorService) { s.Pointer = nil }, map[string]string{"pointer": "removed"}},
		"a finalizer": {func(s *vendorService) { AddFinalizer(s, "g"); AddFinalizer(s, "f") },
			map[string]string{"metadata.finalizers": `["f","g"]`}},
		"no finalizer": {func(s *vendorService) { RemoveFinalizer(s, "f"); RemoveFinalizer(s, "h") }, map[string]string{"metadata.finalizers": "removed"}},
		"an element": {func(s *vendorService) { s.Spec.Ports[1].Port = 3 },
			map[string]string{"spec.ports": `[{"name":"a","port":1,"unknown":"of a"},{"name":"b","port":3,"unknown":"of b"}]`}},
		"a field of an element cleared": {func(s *vendorService) { s.Spec.Ports[1].Port = 0 },
			map[string]string{"spec.ports": `[{"name":"a","port":1,"unknown":"of a"},{"name":"b","unknown":"of b"}]`}},
		"an element less": {func(s *vendorService) { s.Spec.Ports = s.Spec.Ports[1:] },
			map[string]string{"spec.ports": `[{"name":"b","port":2,"unknown":"of b"}]`}},
		"an element more": {func(s *vendorService) { s.Spec.Ports = append(s.Spec.Ports, vendorPort{Name: "c"}) },
			map[string]string{"spec.ports": `[{"name":"a","port":1,"unknown":"of a"},{"name":"b","port":2,"unknown":"of b"},{"name":"c"}]`}},
		"another order": {func(s *vendorService) { p := s.Spec.Ports; p[0], p[1] = p[1], p[0] },
			map[string]string{"spec.ports": `[{"name":"b","port":2,"unknown":"of b"},{"name":"a","port":1,"unknown":"of a"}]`}},
		"another element": {func(s *vendorService) { s.Spec.Ports = []vendorPort{{Name: "c", Port: 1}, {Name: "b", Port: 2}} },
			map[string]string{"spec.ports": `[{"name":"c","port":1},{"name":"b","port":2,"unknown":"of b"}]`}},
		"a new list of the same":                 {func(s *vendorService) { s.Spec.Ports = []vendorPort{{Name: "a", Port: 1}, {Name: "b", Port: 2}} }, nil},
		"a new list that leaves something out":   {func(s *vendorService) { s.Spec.Ports = []vendorPort{{Name: "a"}, {Name: "b"}} }, nil},
		"a new list that changes and leaves out": {func(s *vendorService) { s.Spec.Ports = []vendorPort{{Name: "a", From: "x"}, {Name: "b"}} }, map[string]string{"spec.ports": `[{"from":"x","name":"a","port":1,"unknown":"of a"},{"name":"b","port":2,"unknown":"of b"}]`}},
		"no list":                                {func(s *vendorService) { s.Spec.Ports = nil }, map[string]string{"spec.ports": "removed"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := changesBy(t, rawService, c.edit)
			if diff := cmp.Diff(c.want, got, cmpEmpty); diff != "" {
				t.Error(diff)
			}
		})
	}
}

var cmpEmpty = cmp.FilterValues(func(a, b map[string]string) bool { return len(a)+len(b) == 0 }, cmp.Comparer(func(a, b map[string]string) bool { return true }))

// K13: elements without an identity are the same element where the edit changes them in
// place, and another one where nothing is in common.
func TestElementsWithoutAnIdentity(t *testing.T) {
	const raw = `{"spec": {"ports": [{"from": "a", "to": "b", "unknown": 1}]}}`
	for name, c := range map[string]struct {
		edit func(*vendorService)
		want map[string]string
	}{
		"changed":  {func(s *vendorService) { s.Spec.Ports[0].To = "c" }, map[string]string{"spec.ports": `[{"from":"a","to":"c","unknown":1}]`}},
		"cleared":  {func(s *vendorService) { s.Spec.Ports[0].To = "" }, map[string]string{"spec.ports": `[{"from":"a","unknown":1}]`}},
		"replaced": {func(s *vendorService) { s.Spec.Ports[0] = vendorPort{From: "x", To: "y"} }, map[string]string{"spec.ports": `[{"from":"x","to":"y"}]`}},
	} {
		if diff := cmp.Diff(c.want, changesBy(t, raw, c.edit)); diff != "" {
			t.Error(name, diff)
		}
	}
}

// K13: what the API server has filled in is no difference.
func TestDefaultsAreNoDifference(t *testing.T) {
	const service = `{"metadata": {"name": "s"}, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}}`
	set := func(ips ...string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = nil
			for _, ip := range ips {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
			}
		}
	}
	if got := changesBy(t, service, set("192.0.2.1")); len(got) != 0 {
		t.Errorf("the same address: %v", got)
	}
	want := map[string]string{"status.loadBalancer.ingress": `[{"ip":"192.0.2.2"},{"ip":"192.0.2.1","ipMode":"VIP"}]`}
	if diff := cmp.Diff(want, changesBy(t, service, set("192.0.2.2", "192.0.2.1"))); diff != "" {
		t.Error(diff)
	}
	want = map[string]string{"status.loadBalancer.ingress": `[{"ip":"192.0.2.2"}]`}
	if diff := cmp.Diff(want, changesBy(t, service, set("192.0.2.2"))); diff != "" {
		t.Errorf("the default of one address is not that of another: %s", diff)
	}
	want = map[string]string{"status.loadBalancer": "removed"} // it is empty then
	if diff := cmp.Diff(want, changesBy(t, service, set())); diff != "" {
		t.Error(diff)
	}

	const ports = `{"spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80}]}}`
	got := changesBy(t, ports, func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}} })
	if len(got) != 0 {
		t.Errorf("a port whose target is not set: %v", got)
	}

	const pod = `{"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]},
		"status": {"startTime": "2026-01-02T03:04:05Z"}}`
	started := metav1.NewTime(time.Date(2026, 1, 2, 4, 4, 5, 0, time.FixedZone("", 3600)))
	got = changesBy(t, pod, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1000m")
		p.Status.StartTime = &started
	})
	if len(got) != 0 {
		t.Errorf("another spelling: %v", got)
	}
	got = changesBy(t, pod, func(p *corev1.Pod) {
		p.Spec.Containers[0].TTY, p.Spec.NodeSelector = true, map[string]string{"a": "010"}
	})
	want = map[string]string{"spec.containers": `[{"image":"i","name":"c","resources":{"limits":{"cpu":"1"}},"tty":true}]`, "spec.nodeSelector.a": `"010"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = changesBy(t, `{"spec": {"nodeSelector": {"a": "10"}, "securityContext": null}}`, func(p *corev1.Pod) {
		p.Spec.NodeSelector["a"] = "010"
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(1))}
	})
	want = map[string]string{"spec.nodeSelector.a": `"010"`, "spec.securityContext": `{"runAsUser":1}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a text that reads as a number: %s", diff)
	}
}

func TestConditionsChangeTheirTimeWithTheirStatus(t *testing.T) {
	before := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	all := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "A", LastTransitionTime: before, ObservedGeneration: 2}}
	if SetCondition(&all, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "A"}) {
		t.Error("changed by nothing")
	}
	if !SetCondition(&all, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "B"}) || all[0].LastTransitionTime != before || all[0].ObservedGeneration != 2 {
		t.Errorf("another reason: %+v", all[0])
	}
	if !SetCondition(&all, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "B"}) || all[0].LastTransitionTime == before {
		t.Errorf("another status: %+v", all[0])
	}
}

// Whatever the object, an edit of nothing changes nothing.
func FuzzAnEditOfNothing(f *testing.F) {
	f.Add(rawService)
	f.Add(`{"metadata": {"creationTimestamp": null, "labels": {}}, "spec": {"ports": [null, {}], "externalIPs": null}}`)
	f.Fuzz(func(t *testing.T, text string) {
		raw := map[string]any{}
		if utiljson.Unmarshal([]byte(text), &raw) != nil {
			t.Skip()
		}
		after, err := editTyped(raw, func(*corev1.Service) error { return nil })
		if err != nil {
			t.Skip()
		}
		if diff := cmp.Diff(raw, after); diff != "" {
			t.Error(diff)
		}
	})
}
