// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Template makes the objects of the benchmarks without encoding each: a realistic
// object, encoded once, of which name, namespace, uid, address, node, workload
// and revision are written over, each as long as it was. There are 500
// namespaces, 2,000 nodes and 2,000 workloads, each with labels and an owner of
// its own. It is an http.Handler that serves Size of them, whatever the path, in
// all ways in which a stream may ask, and n updates when ?n= is posted to it.
type Template struct {
	Size     int
	protobuf []byte // nil: JSON only
	json     []byte

	mu      sync.Mutex
	updates int // that a watch has to send in all
	changed chan struct{}
}

// NewPods makes a template of so many pods.
func NewPods(size int) *Template {
	pod := TemplatePod()
	t := &Template{Size: size, changed: make(chan struct{})}
	t.protobuf, _ = pod.Marshal()
	t.json, _ = json.Marshal(pod)
	return t
}

// NewEndpoints makes a template of so many custom resources of 2 KB.
func NewEndpoints(size int) *Template {
	return &Template{Size: size, json: templateEndpoint(), changed: make(chan struct{})}
}

// What is written over, and with what. All texts of a line are of one length.
var placeholders = []struct {
	text  string
	write func(b []byte, i, round int)
}{
	{"pod-0000000-xxxxx", func(b []byte, i, _ int) { copy(b[4:], fmt.Sprintf("%07d", i)) }},
	{"namespace-000", func(b []byte, i, _ int) { copy(b[10:], fmt.Sprintf("%03d", i%500)) }},
	{"00000000-aaaa-4aaa-8aaa-aaaaaaaaaaaa", func(b []byte, i, _ int) { copy(b, fmt.Sprintf("%08x", i)) }},
	{"00000000-bbbb-4bbb-8bbb-bbbbbbbbbbbb", func(b []byte, i, _ int) { copy(b, fmt.Sprintf("%08x", i%2000)) }},
	{"10.100.100.100", func(b []byte, i, _ int) {
		copy(b[3:], fmt.Sprintf("%d.%d.%d", 100+i/10000%100, 100+i/100%100, 100+i%100))
	}},
	{"node-0000.example", func(b []byte, i, _ int) { copy(b[5:], fmt.Sprintf("%04d", i*7%2000)) }},
	{"workload-0000", func(b []byte, i, _ int) { copy(b[9:], fmt.Sprintf("%04d", i%2000)) }},
	{"1000000000", func(b []byte, i, round int) { copy(b, strconv.Itoa(1000000000+i+round)) }},
}

// prepared is a template with the places to write to.
type prepared struct {
	bytes  []byte
	places [][]int // by placeholder
}

func prepare(encoded []byte) *prepared {
	p := &prepared{bytes: bytes.Clone(encoded), places: make([][]int, len(placeholders))}
	for n, ph := range placeholders {
		for at := 0; ; {
			i := bytes.Index(encoded[at:], []byte(ph.text))
			if i < 0 {
				break
			}
			p.places[n] = append(p.places[n], at+i)
			at += i + len(ph.text)
		}
		if len(p.places[n]) == 0 {
			panic("template has no " + ph.text)
		}
	}
	return p
}

// object returns object i at the given number of revisions after the first. The bytes
// are valid until the next call.
func (p *prepared) object(i, round int) []byte {
	for n, ph := range placeholders {
		for _, at := range p.places[n] {
			ph.write(p.bytes[at:at+len(ph.text)], i, round)
		}
	}
	return p.bytes
}

// Encoded returns the protobuf message, if there is one, and the JSON of object
// i.
func (t *Template) Encoded(i int) (protobuf, jsonText []byte) {
	if t.protobuf != nil {
		protobuf = bytes.Clone(prepare(t.protobuf).object(i, 0))
	}
	return protobuf, bytes.Clone(prepare(t.json).object(i, 0))
}

// ServeHTTP implements http.Handler.
func (t *Template) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	inProtobuf := strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) && t.protobuf != nil
	out := &templateWriter{w: w, inProtobuf: inProtobuf, objects: prepare(t.json), listed: `"kind":"PodList","apiVersion":"v1"`}
	if t.protobuf == nil {
		out.listed = `"kind":"EndpointList","apiVersion":"example.com/v1"`
	}
	if inProtobuf {
		out.objects = prepare(t.protobuf)
	}
	switch {
	case r.Method == http.MethodPost:
		n, _ := strconv.Atoi(q.Get("n"))
		t.mu.Lock()
		t.updates += n
		close(t.changed)
		t.changed = make(chan struct{})
		t.mu.Unlock()
	case q.Get("watch") != "true":
		out.list(t.Size)
	default:
		out.header(";stream=watch")
		if q.Get("sendInitialEvents") == "true" {
			for i := range t.Size {
				out.event("ADDED", out.objects.object(i, 0))
			}
			out.mark(1000000000 + t.Size)
		}
		out.report()
		t.follow(out, r)
	}
}

// follow sends updates as they are asked for.
func (t *Template) follow(out *templateWriter, r *http.Request) {
	for sent := 0; ; {
		t.mu.Lock()
		want, changed := t.updates, t.changed
		t.mu.Unlock()
		for ; sent < want; sent++ {
			out.event("MODIFIED", out.objects.object(sent%t.Size, (1+sent/t.Size)*t.Size))
			if sent%64 == 0 {
				out.report()
			}
		}
		out.report()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

type templateWriter struct {
	w          http.ResponseWriter
	inProtobuf bool
	listed     string // kind of a list, in JSON
	objects    *prepared
	buf        []byte
}

func (o *templateWriter) header(suffix string) {
	contentType := runtime.ContentTypeJSON
	if o.inProtobuf {
		contentType = runtime.ContentTypeProtobuf
	}
	o.w.Header().Set("Content-Type", contentType+suffix)
}

func (o *templateWriter) report() {
	_, _ = o.w.Write(o.buf)
	o.buf = o.buf[:0]
	o.w.(http.Flusher).Flush()
}

func (o *templateWriter) event(typ string, object []byte) {
	if !o.inProtobuf {
		o.buf = append(o.buf, `{"type":"`+typ+`","object":`...)
		o.buf = append(append(o.buf, object...), "}\n"...)
	} else {
		enveloped := envelop("v1", "Pod", object)
		frame := appendBytes(appendBytes(nil, 1, []byte(typ)), 2, appendBytes(nil, 1, enveloped))
		o.buf = append(binary.BigEndian.AppendUint32(o.buf, uint32(len(frame))), frame...)
	}
	if len(o.buf) > 64<<10 {
		_, _ = o.w.Write(o.buf)
		o.buf = o.buf[:0]
	}
}

func (o *templateWriter) mark(revision int) {
	mark := &metav1.PartialObjectMetadata{}
	mark.ResourceVersion = strconv.Itoa(revision)
	mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	encoded, _ := json.Marshal(mark)
	if o.inProtobuf {
		encoded, _ = mark.Marshal()
	}
	o.event("BOOKMARK", encoded)
}

func (o *templateWriter) list(size int) {
	o.header("")
	if !o.inProtobuf {
		o.buf = append(o.buf, "{"+o.listed+`,"metadata":{"resourceVersion":"1000000000"},"items":[`...)
		for i := range size {
			if i > 0 {
				o.buf = append(o.buf, ',')
			}
			o.buf = append(o.buf, o.objects.object(i, 0)...)
			if len(o.buf) > 64<<10 {
				_, _ = o.w.Write(o.buf)
				o.buf = o.buf[:0]
			}
		}
		o.buf = append(o.buf, "]}"...)
		o.report()
		return
	}
	meta, _ := (&metav1.ListMeta{ResourceVersion: "1000000000"}).Marshal()
	message := appendBytes(nil, 1, meta)
	pod := appendBytes(nil, 2, o.objects.bytes)
	// The envelope's lengths have to be known first: all pods are of one length.
	length := len(message) + size*len(pod)
	head := append([]byte("k8s\x00"), appendBytes(nil, 1, typeMeta("v1", "PodList"))...)
	head = append(head, 2<<3|2)
	o.buf = append(binary.AppendUvarint(head, uint64(length)), message...)
	for i := range size {
		o.buf = appendBytes(o.buf, 2, o.objects.object(i, 0))
		if len(o.buf) > 64<<10 {
			_, _ = o.w.Write(o.buf)
			o.buf = o.buf[:0]
		}
	}
	o.report()
}

func typeMeta(apiVersion, kind string) []byte {
	b, _ := (&runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}).Marshal()
	return b
}

// TemplatePod is the pod of the benchmarks: two containers and an init container
// with eight variables each, probes, volumes, four conditions and two entries of
// managed fields, 5.6 KB in protobuf and 9 KB in JSON.
func TemplatePod() *corev1.Pod {
	labels := map[string]string{
		"app.kubernetes.io/name": "workload-0000", "app.kubernetes.io/instance": "production", "app.kubernetes.io/component": "server",
		"app.kubernetes.io/part-of": "shop", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7c9f8d6b5d", "tier": "backend",
	}
	at := metav1.NewTime(time.Unix(1700000000, 0))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod-0000000-xxxxx", GenerateName: "workload-0000-7c9f8d6b5d-", Namespace: "namespace-000",
			UID: "00000000-aaaa-4aaa-8aaa-aaaaaaaaaaaa", ResourceVersion: "1000000000", CreationTimestamp: at, Labels: labels,
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
				"checksum/config": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "workload-0000-7c9f8d6b5d", UID: "00000000-bbbb-4bbb-8bbb-bbbbbbbbbbbb",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", Time: &at,
					FieldsV1: metav1.NewFieldsV1(managedFields("spec", 5))},
				{Manager: "kubelet", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", Time: &at, Subresource: "status",
					FieldsV1: metav1.NewFieldsV1(managedFields("status", 4))},
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-0000.example", ServiceAccountName: "workload", RestartPolicy: corev1.RestartPolicyAlways,
			DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler", TerminationGracePeriodSeconds: new(int64(30)),
			Priority: new(int32(0)), EnableServiceLinks: new(true), SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(1000))},
			InitContainers: []corev1.Container{templateContainer("init", 0)},
			Containers:     []corev1.Container{templateContainer("server", 8080), templateContainer("sidecar", 9090)},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}},
				{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
				}}}},
			},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "192.168.10.10", PodIP: "10.100.100.100", PodIPs: []corev1.PodIP{{IP: "10.100.100.100"}},
			StartTime: &at, QOSClass: corev1.PodQOSBurstable,
		},
	}
	for _, typ := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: typ, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Started: new(true), Image: c.Image,
			ImageID:     "registry.example.com/shop/server@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			ContainerID: "containerd://e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	return pod
}

func templateContainer(name string, port int32) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example.com/shop/server:v1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/usr/local/bin/server", "--config=/etc/config/server.yaml", "--log-level=info"},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("256Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/config", ReadOnly: true},
			{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	for i := range 8 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SHOP_SETTING_%d", i), Value: fmt.Sprintf("https://service-%d.shop.svc:8443", i)})
	}
	if port > 0 {
		c.Ports = []corev1.ContainerPort{{Name: "http-" + name, ContainerPort: port, Protocol: corev1.ProtocolTCP}}
		probe := &corev1.Probe{
			ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP}},
			InitialDelaySeconds: 5, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		}
		c.LivenessProbe, c.ReadinessProbe = probe, probe
	}
	return c
}

func managedFields(under string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"f:%s":{`, under)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"f:someField%d":{".":{},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:status":{}}}`, i)
	}
	b.WriteString("}}")
	return b.String()
}

// templateEndpoint is a custom resource of 2 KB: what an agent writes per pod.
func templateEndpoint() []byte {
	pod := TemplatePod()
	var identity []string
	for k, v := range pod.Labels {
		identity = append(identity, "k8s:"+k+"="+v)
	}
	slices.Sort(identity)
	text, err := json.Marshal(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Endpoint",
		"metadata": map[string]any{
			"name": pod.Name, "namespace": pod.Namespace, "uid": pod.UID, "resourceVersion": pod.ResourceVersion,
			"creationTimestamp": pod.CreationTimestamp, "labels": pod.Labels, "ownerReferences": pod.OwnerReferences,
		},
		"status": map[string]any{
			"id": 1234, "state": "ready",
			"identity":   map[string]any{"id": 54321, "labels": identity},
			"networking": map[string]any{"addressing": []any{map[string]any{"ipv4": pod.Status.PodIP}}, "node": pod.Spec.NodeName},
			"named-ports": []any{
				map[string]any{"name": "http", "port": 8080, "protocol": "TCP"}, map[string]any{"name": "metrics", "port": 9090, "protocol": "TCP"},
			},
			"policy": map[string]any{
				"ingress": map[string]any{"enforcing": true, "state": strings.Repeat("enforced ", 40)},
				"egress":  map[string]any{"enforcing": false, "state": strings.Repeat("disabled ", 20)},
			},
		},
	})
	if err != nil {
		panic(err)
	}
	return text
}
