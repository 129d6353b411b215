// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"
	"sigs.k8s.io/randfill"
)

// Every slim decoder is held against the full type: a random full object is
// encoded by the full type's own marshaller, decoded by both, and what the slim
// type keeps is compared by walking both values with reflect, field by JSON
// name. Nothing here knows a field by name, so a slim field that is added is
// compared too.

type fullObject interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

func FuzzPod(f *testing.F) { fuzzKind[Pod, corev1.Pod](f, func() fullObject { return &corev1.Pod{} }) }

func FuzzNamespace(f *testing.F) {
	fuzzKind[Namespace, corev1.Namespace](f, func() fullObject { return &corev1.Namespace{} })
}

func FuzzNode(f *testing.F) {
	fuzzKind[Node, corev1.Node](f, func() fullObject { return &corev1.Node{} })
}

func FuzzService(f *testing.F) {
	fuzzKind[Service, corev1.Service](f, func() fullObject { return &corev1.Service{} })
}

func FuzzEndpointSlice(f *testing.F) {
	fuzzKind[EndpointSlice, discoveryv1.EndpointSlice](f, func() fullObject { return &discoveryv1.EndpointSlice{} })
}

// fuzzKind takes data twice: as the seed of a random object, and as raw bytes.
func fuzzKind[T, Full any](f *testing.F, newFull func() fullObject) {
	codec, err := Protobuf[T, Full]()
	if err != nil {
		f.Fatal(err)
	}
	for i := range 200 {
		f.Add([]byte("seed " + strconv.Itoa(i)))
	}
	for i := range 20 {
		full := randomObject(newFull(), []byte(strconv.Itoa(i)))
		message, err := full.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
		for cut := range 8 {
			f.Add(message[:len(message)*cut/8])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzObject(t, codec, newFull, data)
		fuzzRaw(t, codec, newFull, data)
	})
}

func randomObject(full fullObject, seed []byte) fullObject {
	randfill.NewFromGoFuzz(seed).NilChance(.3).NumElements(0, 4).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) { *s = randomString(c) },
		func(tm *metav1.Time, c randfill.Continue) { tm.Time = time.Unix(c.Int63n(1<<33), 0) },
		func(tm *metav1.MicroTime, c randfill.Continue) { tm.Time = time.Unix(c.Int63n(1<<33), 0) },
		func(u *types.UID, c randfill.Continue) { *u = types.UID(randomUID(c)) },
		func(m *metav1.FieldsV1, c randfill.Continue) { m.SetRawString("{}") },
		func(e *runtime.RawExtension, c randfill.Continue) {},
	).Fill(full)
	full.SetResourceVersion(strconv.FormatUint(1+uint64(sum(seed)), 10))
	return full
}

func sum(b []byte) (n uint32) {
	for _, c := range b {
		n = n*31 + uint32(c)
	}
	return n
}

// randomString mixes what fields really hold with arbitrary text.
func randomString(c randfill.Continue) string {
	texts := []string{
		"", "a", "Running", "TCP", "10.0.0.1", "010.1.2.3", "fd00::1", "::ffff:10.1.2.3", "None",
		"service.cilium.io/global", "io.cilium/lb-ipam-ips", "app.kubernetes.io/name", "not an address", "\"quoted\\\"",
	}
	if n := c.Intn(len(texts) + 6); n < len(texts) {
		return texts[n]
	}
	return c.String(40)
}

func randomUID(c randfill.Continue) string {
	uids := []string{
		"", "b4a7a9d2-4a4f-4c1c-9d0e-6b8f7e3e1c55", "B4A7A9D2-4A4F-4C1C-9D0E-6B8F7E3E1C55",
		"00000000-0000-0000-0000-000000000000", "5e1f1a3bdbb2c7a6b8e9f0d1c2b3a495", "b4a7a9d2-4a4f-4c1c-9d0e-6b8f7e3e1cxx",
	}
	return uids[c.Intn(len(uids))]
}

func fuzzObject[T any](t *testing.T, codec *Codec[T], newFull func() fullObject, data []byte) {
	full := randomObject(newFull(), data)
	message, err := full.Marshal()
	if err != nil {
		t.Skip("the full type does not encode it:", err)
	}
	// What the full type reads back is what is compared: not every Go value
	// survives its encoding.
	want := newFull()
	if err := want.Unmarshal(message); err != nil {
		t.Fatal(err)
	}
	slim, wire := new(T), guarded(message)
	if err := codec.DecodeProtobuf(NewInterner(), wire, slim); err != nil {
		t.Fatalf("protobuf: %v", err)
	}
	clear(wire) // the decoded object holds none of the bytes
	compareKept(t, "protobuf: object", reflect.ValueOf(want).Elem(), reflect.ValueOf(slim).Elem())

	if meta, err := codec.DecodeProtobufMeta(NewInterner(), message); err != nil || meta != *MetaOf(slim) {
		t.Fatalf("protobuf metadata: %v, %v; want %v", meta, err, *MetaOf(slim))
	}

	text, err := json.Marshal(full)
	if err != nil {
		t.Skip("the full type does not encode it as JSON:", err)
	}
	want = newFull()
	if err := json.Unmarshal(text, want); err != nil {
		t.Skip("the full type does not decode its JSON:", err)
	}
	slim, wire = new(T), guarded(text)
	if err := codec.DecodeJSON(wire, slim); err != nil {
		t.Fatalf("JSON: %v\n%s", err, text)
	}
	clear(wire)
	compareKept(t, "JSON: object", reflect.ValueOf(want).Elem(), reflect.ValueOf(slim).Elem())
}

// fuzzRaw feeds arbitrary bytes: no panic, and what the full type accepts the
// slim one does too, with one reading of it, unless a resourceVersion is no
// number.
func fuzzRaw[T any](t *testing.T, codec *Codec[T], newFull func() fullObject, data []byte) {
	slim := new(T)
	err := codec.plan.decode(NewInterner(), guarded(data), pointerTo(slim)) // past the recover
	full := newFull()
	if full.Unmarshal(data) == nil && err == nil && utf8.Valid(data) {
		if rv, rvErr := ParseRevision(full.GetResourceVersion()); rvErr == nil && MetaOf(slim).ResourceVersion != rv {
			t.Errorf("resourceVersion %v, want %v", MetaOf(slim).ResourceVersion, rv)
		}
	}
	_ = codec.DecodeJSON(guarded(data), new(T))
	var l Labels
	_ = l.UnmarshalJSON(guarded(data))
}

// guarded returns a copy without spare capacity, so that a read beyond it
// panics.
func guarded(b []byte) []byte { return slices.Clip(slices.Clone(b)) }

// compareKept walks the slim value and holds every field against the full one.
func compareKept(t *testing.T, at string, full, slim reflect.Value) {
	t.Helper()
	for full.Kind() == reflect.Pointer {
		if full.IsNil() {
			if !slim.IsZero() {
				t.Errorf("%s: %v, but the full object has none", at, slim)
			}
			return
		}
		if slim.Kind() == reflect.Pointer {
			if slim.IsNil() {
				t.Errorf("%s: nil, but the full object has %v", at, full.Elem())
				return
			}
			slim = slim.Elem()
		}
		full = full.Elem()
	}
	equal := func(got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", at, got, want)
		}
	}
	switch got := slim.Interface().(type) {
	case String:
		equal(got.String(), full.String())
	case UID:
		equal(got.String(), full.String())
	case Revision:
		equal(got.String(), full.String())
	case Addr:
		equal(got.Addr, addrOf(full.String()))
	case Time:
		equal(got.Time().Unix(), full.Interface().(metav1.Time).Unix())
	case Labels:
		equal(got.Map(), stringMap(full, func(string) bool { return true }))
	case Subset[CiliumAnnotations]:
		equal(got.Map(), stringMap(full, CiliumAnnotations{}.Keep))
	case Owner:
		equal(got.Reference(), controllerOf(full.Interface().([]metav1.OwnerReference)))
	case NamedPorts:
		equal(slices.Collect(got.All()), namedPortsOf(full.Interface().([]corev1.Container)))
	default:
		compareKind(t, at, full, slim)
	}
}

func compareKind(t *testing.T, at string, full, slim reflect.Value) {
	t.Helper()
	switch {
	case slim.Type() == full.Type():
		if !(slim.Kind() == reflect.Slice && slim.Len() == 0 && full.Len() == 0) && !reflect.DeepEqual(slim.Interface(), full.Interface()) {
			t.Errorf("%s: %v, want %v", at, slim, full)
		}
	case slim.Kind() == reflect.Slice:
		if slim.Len() != full.Len() {
			t.Errorf("%s: %d elements, want %d", at, slim.Len(), full.Len())
			return
		}
		for i := range slim.Len() {
			compareKept(t, at+"["+strconv.Itoa(i)+"]", full.Index(i), slim.Index(i))
		}
	case slim.Kind() == reflect.Struct:
		for i := range slim.NumField() {
			f := slim.Type().Field(i)
			name, inline := jsonName(f)
			if name == "-" { // it says something about the others
				continue
			}
			if inline {
				compareKept(t, at, full, slim.Field(i))
				continue
			}
			field, ok := fieldByJSON(full, name)
			if !ok {
				t.Errorf("%s: the full type has no %q", at, name)
				continue
			}
			compareKept(t, at+"."+f.Name, field, slim.Field(i))
		}
	default:
		if want := full.Convert(slim.Type()); !reflect.DeepEqual(slim.Interface(), want.Interface()) {
			t.Errorf("%s: %v, want %v", at, slim, want)
		}
	}
}

func fieldByJSON(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		fieldName, inline := jsonName(v.Type().Field(i))
		if inline {
			if f, ok := fieldByJSON(v.Field(i), name); ok {
				return f, true
			}
		} else if fieldName == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func addrOf(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return a
	}
	a, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	return a.Unmap()
}

func stringMap(v reflect.Value, keep func(string) bool) map[string]string {
	m := maps.Clone(v.Interface().(map[string]string))
	maps.DeleteFunc(m, func(k, _ string) bool { return !keep(k) })
	if len(m) == 0 {
		return nil
	}
	return m
}

func controllerOf(refs []metav1.OwnerReference) OwnerReference {
	for _, ref := range refs {
		if ref.Controller != nil && *ref.Controller {
			kept := func(part string) string { return part[:min(len(part), mostOfOwner)] }
			return OwnerReference{
				APIVersion: MakeString(kept(ref.APIVersion)), Kind: MakeString(kept(ref.Kind)), Name: kept(ref.Name),
				UID: ParseUID(kept(string(ref.UID))), Controller: true,
			}
		}
	}
	return OwnerReference{}
}

func namedPortsOf(containers []corev1.Container) (named []NamedPort) {
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name != "" {
				named = append(named, NamedPort{Name: p.Name, Port: p.ContainerPort, Protocol: string(p.Protocol)})
			}
		}
	}
	return named
}
