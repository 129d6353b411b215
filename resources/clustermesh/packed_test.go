// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// valueOf is the value of a service of the cluster a.
func valueOf(key slim.Key, fields string) string {
	return fmt.Sprintf(`{"cluster":"a","namespace":%q,"name":%q,"clusterID":2,"shared":true,%s}`, key.Namespace, key.Name, fields)
}

// listOf is n entries of JSON, each of its index.
func listOf(n int, entry func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = entry(i)
	}
	return strings.Join(all, ",")
}

// backendsOf is n backends, each with ports of its index.
func backendsOf(n int, ports func(i int) string) string {
	return `"backends":{` + listOf(n, func(i int) string { return fmt.Sprintf(`"::%x:%x":%s`, i>>16+1, i&0xffff, ports(i)) }) + `}`
}

// exportOf is the value of an export of the cluster a, with other ports or further fields.
func exportOf(key slim.Key, ports, fields string) string {
	text := strings.NewReplacer(`"web"`, fmt.Sprintf("%q", key.Name), `"other":{"a":"b"}`, `"other":1`+fields).Replace(exported("a", "Headless", 80))
	if ports != "" {
		text = strings.Replace(text, `{"name":"http","protocol":"TCP","port":80}`, ports, 1)
	}
	return text
}

// heap is how many bytes are in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// fill sets values whose texts are three times the bound, and returns how many bytes are counted. The heap grows by no more.
func fill[T any](t *testing.T, c codec[T], most int, value func(key slim.Key) string) (counted int) {
	t.Helper()
	o := newObjects(c, 0, most)
	before := heap()
	o.begin("a")
	for i, read := 0, 0; read < 3*most && i < 20_000; i++ {
		key := slim.Key{Namespace: "shop", Name: fmt.Sprint("web-", i)}
		text := value(key)
		read += len(text)
		_ = o.set("a", key, []byte(text))
	}
	o.complete("a")
	kept := heap() - before
	counted = o.clusters["a"].bytes
	const slack = 128 << 10 // of the test itself
	if kept > counted+slack || counted > most {
		t.Errorf("%d bytes are kept, %d are counted, and %d are the bound", kept, counted, most)
	}
	runtime.KeepAlive(o)
	return counted
}

// MESH-19, number K3 of the contract's tenants.md: what is counted of the values of a cluster is what is kept, however they are made.
func TestWhatIsKeptIsCounted(t *testing.T) {
	const most = 512 << 10
	ordinary := func(int) string { return `{"http":{"Protocol":"TCP","Port":8080}}` }
	for name, value := range map[string]func(key slim.Key) string{
		"ordinary":    func(key slim.Key) string { return valueOf(key, backendsOf(1000, ordinary)) },
		"small":       func(key slim.Key) string { return valueOf(key, backendsOf(1, ordinary)) },
		"no backends": func(key slim.Key) string { return valueOf(key, `"backends":{}`) },
		"no ports": func(key slim.Key) string {
			return valueOf(key, backendsOf(1000, func(int) string { return `{"":{}}` }))
		},
		"ports of their own": func(key slim.Key) string {
			return valueOf(key, backendsOf(500, func(i int) string { return fmt.Sprintf(`{"":{"Port":%d}}`, i) }))
		},
		"many ports": func(key slim.Key) string {
			return valueOf(key, `"backends":{"::1":{`+listOf(5000, func(i int) string { return fmt.Sprintf(`"%x":{}`, i) })+`}}`)
		},
		"hostnames": func(key slim.Key) string {
			return valueOf(key, `"hostnames":{`+listOf(5000, func(i int) string { return fmt.Sprintf(`"%x":""`, i) })+`}`)
		},
		"unreadable": func(key slim.Key) string { return valueOf(key, `"backends":{"`+strings.Repeat("a", 10_000)+`":{}}`) },
		"of another": func(key slim.Key) string {
			return valueOf(slim.Key{Namespace: key.Namespace, Name: strings.Repeat("a", 10_000)}, `"backends":{}`)
		},
	} {
		t.Run("services/"+name, func(t *testing.T) { fill(t, serviceCodec(255), most, value) })
	}
	for name, value := range map[string]func(key slim.Key) string{
		"ordinary": func(key slim.Key) string { return exportOf(key, "", "") },
		"ports": func(key slim.Key) string {
			return exportOf(key, listOf(5000, func(int) string { return `{"port":1}` }), "")
		},
		"labels": func(key slim.Key) string {
			return exportOf(key, "", `,"labels":{`+listOf(1000, func(i int) string { return fmt.Sprintf(`"l%x":""`, i) })+`}`)
		},
		"annotations": func(key slim.Key) string {
			return exportOf(key, "", `,"Annotations":{`+listOf(1000, func(i int) string { return fmt.Sprintf(`"l%x":""`, i) })+`}`)
		},
		"unreadable": func(key slim.Key) string {
			return strings.Replace(exportOf(key, "", ""), "Headless", strings.Repeat("a", 10_000), 1)
		},
	} {
		t.Run("exports/"+name, func(t *testing.T) { fill(t, exportCodec, most, value) })
	}
}

// MESH-19: of what fits, nothing is lost: ordinary values need no more than their text.
func TestOrdinaryValuesNeedNoMoreThanTheirText(t *testing.T) {
	value := []byte(valueOf(web, `"frontends":{"10.96.0.1":{"http":{"Protocol":"TCP","Port":80}}},"hostnames":{},"labels":{"app":"web"},"selector":{"app":"web"},"includeExternal":true,`+
		backendsOf(100, func(int) string { return `{"http":{"Protocol":"TCP","Port":8080}}` })))
	packed, err := packService("a", web, value, 255, 0)
	if err != nil || sizeOf(web, packed) > len(value)/2 {
		t.Errorf("%d bytes of %d, %v", sizeOf(web, packed), len(value), err)
	}
}

// MESH-10, MESH-19; number K3 of the contract's tenants.md: no value needs more than its share when it is decoded, and the largest ordinary one does not.
func TestOneValueIsBounded(t *testing.T) {
	const most = 28 << 20 / partOfValue // with a limit of 230 MiB
	const large = 1500 << 10
	until := func(size int, entry func(i int) string) string {
		return backendsOf(size/(len(entry(30_000))+10), entry)
	}
	for name, test := range map[string]struct {
		fields   string
		tooLarge bool
	}{
		"ordinary":           {until(large, func(int) string { return `{"http":{"Protocol":"TCP","Port":8080}}` }), false},
		"no ports":           {until(large, func(int) string { return `{"":{}}` }), true},
		"ports of their own": {until(large, func(i int) string { return fmt.Sprintf(`{"":{"Port":%d}}`, i) }), true},
		"many ports":         {`"backends":{"::1":{` + listOf(large/10, func(i int) string { return fmt.Sprintf(`"%x":{}`, i) }) + `}}`, true},
		"hostnames":          {`"hostnames":{` + listOf(large/10, func(i int) string { return fmt.Sprintf(`"%x":""`, i) }) + `}`, true},
		"frontends":          {strings.Replace(until(large, func(int) string { return `{"":{}}` }), "backends", "frontends", 1), false},
		"one long text":      {`"other":"` + strings.Repeat("a", most) + `"`, true},
	} {
		packed, err := packService("a", web, []byte(valueOf(web, test.fields)), 255, most)
		if errors.Is(err, errTooLarge) != test.tooLarge || err == nil == test.tooLarge {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		before := heap()
		s, err := unpackService("a", web, string(packed))
		if grown := heap() - before; err != nil || grown > most {
			t.Errorf("%s: %d bytes, %v", name, grown, err)
		}
		runtime.KeepAlive(s)
	}
	ports := func(n int) []byte {
		return []byte(exportOf(web, listOf(n, func(int) string { return `{"port":1}` }), ""))
	}
	if _, err := packServiceExport("a", web, ports(large/11), most); err != nil {
		t.Errorf("a large export: %v", err)
	}
	if _, err := packServiceExport("a", web, ports(2<<20/11), most); !errors.Is(err, errTooLarge) {
		t.Errorf("an export that is too large: %v", err)
	}
}

// reference decodes the value of a service in the plain way.
func reference(value string) (s *Service, ok bool) {
	var v struct {
		origin
		Backends  map[string]Ports  `json:"backends"`
		Hostnames map[string]string `json:"hostnames"`
		Frontends map[string]Ports  `json:"frontends"`
		Shared    bool              `json:"shared"`
		ClusterID uint32            `json:"clusterID"`
	}
	if json.Unmarshal([]byte(value), &v) != nil || v.check("a", web) != nil || v.ClusterID == 0 || v.ClusterID > 255 {
		return nil, false
	}
	for _, addresses := range []map[string]Ports{v.Frontends, v.Backends} {
		for ip := range addresses {
			if _, err := netip.ParseAddr(ip); err != nil {
				return nil, false
			}
		}
	}
	return &Service{v.origin, v.Backends, v.Hostnames, v.Shared, v.ClusterID}, true
}

// sameService compares services; an empty map is none.
func sameService(a, b *Service) bool {
	if len(a.Backends) != len(b.Backends) || len(a.Hostnames) != len(b.Hostnames) || a.origin != b.origin || a.Shared != b.Shared || a.ClusterID != b.ClusterID {
		return false
	}
	for ip, ports := range a.Backends {
		if other, has := b.Backends[ip]; !has || len(ports) != len(other) || len(ports) > 0 && !reflect.DeepEqual(ports, other) {
			return false
		}
	}
	return len(a.Hostnames) == 0 || reflect.DeepEqual(a.Hostnames, b.Hostnames)
}

// checkService compares what is kept of a value with what it is.
func checkService(t *testing.T, value string) (isUsed bool) {
	t.Helper()
	want, ok := reference(value)
	packed, err := packService("a", web, []byte(value), 255, 0)
	if err != nil {
		return false
	}
	if !ok {
		t.Fatalf("it is used: %s", value)
	}
	if got, err := unpackService("a", web, string(packed)); err != nil || !sameService(got, want) {
		t.Fatalf("%s:\n%+v, want\n%+v, %v", value, got, want, err)
	}
	return true
}

// oddFields are fields of services that are hard to decode.
var oddFields = []string{
	`"backends":null`, `"backends":{}`, `"backends":[]`, `"backends":"a"`, `"backends":1`, `"Backends":{"::1":{"a":{}}}`,
	`"backends":{"::1":null}`, `"backends":{"::1":{}}`, `"backends":{"::1":[]}`, `"backends":{"::1":{"a":null}}`, `"backends":{"::1":{"a":1}}`,
	`"backends":{"::1":{"a":{"Port":70000}}}`, `"backends":{"::1":{"a":{"port":7,"PROTOCOL":"TCP","other":[]}}}`, `"backends":{"::1":{"a":{"Protocol":1}}}`,
	`"backends":{"::1":{"a":{},"a":{"Port":1}},"::1":{"b":{}}}`, `"backends":{"::1":{"a":{}}},"backends":{"::2":{"a":{}}}`, `"backends":{"::1":{}},"backends":null`,
	`"backends":{"a":{}}`, `"backends":{"":{}}`, `"backends":{"::1%a":{}}`, `"frontends":{"a":{}}`, `"frontends":{"::1":{"a":1}}`, `"frontends":{"::1":1}`, `"frontends":null`,
	`"frontends":{"::1":null,"::2":{"a":{"Port":1}}}`, `"frontends":1`,
	`"hostnames":{"::1":"a","::1":"b"}`, `"hostnames":null`, `"hostnames":{"::1":1}`, `"hostnames":{"::1":null}`, `"hostnames":["a"]`, `"hostnames":{"\u003c\ud800":"&\u2028"}`,
	`"shared":null`, `"shared":1`, `"other":{"a":[{}]}`,
}

// MESH-10: what is kept of a value is what the value is, and what is refused is what cannot be decoded.
func TestKeptServices(t *testing.T) {
	check := func(value string) {
		t.Helper()
		if _, want := reference(value); checkService(t, value) != want {
			t.Errorf("it is refused, or used: %s", value)
		}
	}
	for _, fields := range oddFields {
		check(valueOf(web, fields))
	}
	r := rand.New(rand.NewPCG(1, 10))
	for range 300 {
		fields := []string{oddFields[r.IntN(len(oddFields))]}
		fields = append(fields, backendsOf(r.IntN(5), func(int) string { return fmt.Sprintf(`{"a":{"Protocol":"TCP","Port":%d}}`, r.IntN(2)) }))
		check(valueOf(web, strings.Join(fields, ",")))
	}
}

// MESH-10: no value makes the decoder fail otherwise than by an error, and what is kept of it is what it is. Of names that an object has twice more is refused.
func FuzzKeptServices(f *testing.F) {
	for _, fields := range oddFields {
		f.Add(fields)
	}
	f.Fuzz(func(t *testing.T, fields string) { checkService(t, valueOf(web, fields)) })
}

// MESH-17: what is kept of an export is what was decoded of it.
func TestKeptExports(t *testing.T) {
	for _, fields := range []string{
		"", `,"labels":{"a":"b"},"annotations":{"c":"<d>"}`, `,"Labels":{"a":"b"}`, `,"ipFamilies":["IPv6"],"internalTrafficPolicy":"Local","trafficDistribution":"PreferClose"`,
		`,"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}}`, `,"ports":null`, `,"ports":[]`,
		`,"exportCreationTimestamp":null`, `,"exportCreationTimestamp":"2024-08-01T10:00:00.5+07:00"`, `,"exportCreationTimestamp":"1890-01-01T00:00:00Z"`,
	} {
		value := []byte(exportOf(web, "", fields))
		want, err := decodeServiceExport("a", web, value)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := packServiceExport("a", web, value, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpackServiceExport("a", web, string(packed))
		if err != nil || !got.Created.Equal(&want.Created) {
			t.Errorf("%s: %v, want %v, %v", fields, got.Created, want.Created, err)
		}
		if got.Created = want.Created; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", fields, got, want)
		}
	}
}
