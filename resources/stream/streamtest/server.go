// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Server is an API server in memory: it lists, in pages too, and watches, with
// initial events too, in protobuf and JSON, and it fails on demand. It keeps the
// whole history of its objects until Compact. It is an http.Handler, safe for
// concurrent use.
type Server struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced when anything changes
	revision  int64
	kinds     map[string]*collection // by path: /api/v1/pods
	requests  []Request
	fail      func(Request) *apierrors.StatusError
	held      chan struct{} // requests wait until it is closed
	epoch     int           // watches of older ones end
	frozen    bool
	withheld  int // requests up to this number hear of no change
	watchList bool
	endMarks  bool
	watches   int
	pageSize  int
}

// Request is a request that the server has got.
type Request struct {
	Path     string
	Watch    bool
	Initial  bool // asks for initial events
	Revision string
	Query    map[string][]string
	Header   http.Header
}

// collection is the objects of one resource.
type collection struct {
	kind     schema.GroupVersionKind
	objects  map[slim.Key]*stored
	log      []change
	since    int64 // changes up to this revision are forgotten
	cached   int64 // how far the server knows it to be: writes and consistent reads tell
	protobuf bool
}

// stored is one state of an object, in both encodings.
type stored struct {
	key      slim.Key
	meta     metav1.ObjectMeta
	json     []byte
	protobuf []byte // message, without envelope; nil for custom resources
}

type change struct {
	revision int64
	typ      string
	object   *stored
}

// NewServer makes an empty server that knows initial events.
func NewServer() *Server {
	return &Server{changed: make(chan struct{}), revision: 1000, kinds: map[string]*collection{}, watchList: true, endMarks: true}
}

// WithoutWatchList makes the server refuse requests for initial events, as one
// does whose WatchList gate is off.
func (s *Server) WithoutWatchList() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchList = false
	return s
}

// WithoutEndMarks makes the server take requests for initial events for ordinary
// watches, as one does that is older than they are.
func (s *Server) WithoutEndMarks() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endMarks = false
	return s
}

// WithPages makes the server answer lists that have a limit in pages of at most
// so many objects.
func (s *Server) WithPages(size int) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageSize = size
	return s
}

// Serve makes the server know a resource. Objects of core ones are given as
// their Go types, those of custom ones as anything that encodes to JSON.
func (s *Server) Serve(gvr schema.GroupVersionResource, kind string, custom bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[pathOf(gvr)] = &collection{
		kind: gvr.GroupVersion().WithKind(kind), objects: map[slim.Key]*stored{}, protobuf: !custom,
	}
	s.wake()
}

// Forget makes the server not know the resource any more: its objects are
// deleted, its watches end, and it answers 404.
func (s *Server) Forget(gvr schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kinds, pathOf(gvr))
	s.wake()
}

func pathOf(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return "/api/" + gvr.Version + "/" + gvr.Resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}

// Put creates or replaces an object, and returns its revision. The object is not
// retained.
func (s *Server) Put(gvr schema.GroupVersionResource, object any) slim.Revision {
	return s.write(gvr, object, false)
}

// Delete deletes the object of this name, if there is one.
func (s *Server) Delete(gvr schema.GroupVersionResource, key slim.Key) slim.Revision {
	s.mu.Lock()
	c := s.kinds[pathOf(gvr)]
	old := c.objects[key]
	s.mu.Unlock()
	if old == nil {
		return 0
	}
	return s.write(gvr, json.RawMessage(old.json), true)
}

func (s *Server) write(gvr schema.GroupVersionResource, object any, gone bool) slim.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.kinds[pathOf(gvr)]
	if c == nil {
		panic(fmt.Sprintf("streamtest.Server does not serve %s", gvr))
	}
	s.revision++
	obj := encode(object, s.revision, c.objects)
	typ := "ADDED"
	old, known := c.objects[obj.key]
	switch {
	case gone:
		typ = "DELETED"
		obj.protobuf = withRevision(old, s.revision)
		delete(c.objects, obj.key)
	case known:
		typ = "MODIFIED"
		fallthrough
	default:
		c.objects[obj.key] = obj
	}
	c.log, c.cached = append(c.log, change{s.revision, typ, obj}), s.revision
	s.wake()
	return slim.Revision(s.revision)
}

// PutRaw creates or replaces an object whose bytes the server passes on as they
// are, readable or not. JSON is for custom resources, protobuf messages for core
// ones.
func (s *Server) PutRaw(gvr schema.GroupVersionResource, key slim.Key, raw []byte) slim.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.kinds[pathOf(gvr)]
	s.revision++
	obj := &stored{key: key, json: raw, protobuf: raw}
	obj.meta.Name, obj.meta.Namespace = key.Name, key.Namespace
	c.objects[key] = obj
	c.log, c.cached = append(c.log, change{s.revision, "MODIFIED", obj}), s.revision
	s.wake()
	return slim.Revision(s.revision)
}

// encode gives an object its metadata and encodes it.
func encode(object any, revision int64, objects map[slim.Key]*stored) *stored {
	if full, ok := object.(runtime.Object); ok {
		object = full.DeepCopyObject()
	}
	obj := &stored{}
	if full, ok := object.(metav1.Object); ok {
		key := slim.Key{Namespace: full.GetNamespace(), Name: full.GetName()}
		full.SetResourceVersion(strconv.FormatInt(revision, 10))
		if full.GetUID() == "" {
			full.SetUID(newUID(revision))
			if old := objects[key]; old != nil {
				full.SetUID(old.meta.UID)
			}
		}
	}
	if full, ok := object.(interface{ Marshal() ([]byte, error) }); ok {
		obj.protobuf, _ = full.Marshal()
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	if _, ok := object.(metav1.Object); !ok {
		text = setMeta(text, revision, objects)
	}
	var parsed struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		panic(err)
	}
	obj.meta, obj.json = parsed.Metadata, text
	obj.key = slim.Key{Namespace: obj.meta.Namespace, Name: obj.meta.Name}
	return obj
}

// setMeta gives an object without Go type its revision and uid.
func setMeta(text []byte, revision int64, objects map[slim.Key]*stored) []byte {
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		panic(err)
	}
	meta, _ := object["metadata"].(map[string]any)
	meta["resourceVersion"] = strconv.FormatInt(revision, 10)
	if meta["uid"] == nil {
		namespace, _ := meta["namespace"].(string)
		name, _ := meta["name"].(string)
		meta["uid"] = string(newUID(revision))
		if old := objects[slim.Key{Namespace: namespace, Name: name}]; old != nil {
			meta["uid"] = string(old.meta.UID)
		}
	}
	text, _ = json.Marshal(object)
	return text
}

// withRevision returns the last state of a deleted core object as the server
// sends it: with the revision of the delete.
func withRevision(old *stored, revision int64) []byte {
	if old == nil || old.protobuf == nil {
		return nil
	}
	var partial metav1.PartialObjectMetadata
	partial.ObjectMeta = old.meta
	partial.ResourceVersion = strconv.FormatInt(revision, 10)
	message, _ := partial.Marshal()
	return message
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Revision is the newest revision.
func (s *Server) Revision() slim.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slim.Revision(s.revision)
}

// Bookmark sends all watches a bookmark.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	for _, c := range s.kinds {
		c.log, c.cached = append(c.log, change{revision: s.revision, typ: "BOOKMARK"}), s.revision
	}
	s.wake()
}

// WriteElsewhere counts a write of a resource that the server does not serve.
func (s *Server) WriteElsewhere() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
}

// Compact forgets the history: a watch from an older revision is refused with
// 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	for _, c := range s.kinds {
		c.log, c.since = nil, s.revision
	}
}

// Cut ends all watches that are open.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.wake()
}

// Fail makes the server answer requests with the error that f returns, if any.
// f must not call the server.
func (s *Server) Fail(f func(Request) *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Hold makes requests wait for their answer until release is called.
func (s *Server) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return sync.OnceFunc(func() { close(held) })
}

// Freeze is Hold for open watches too: connections live, and nothing comes.
func (s *Server) Freeze() (thaw func()) {
	release := s.Hold()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
	return func() {
		s.mu.Lock()
		s.frozen = false
		s.wake()
		s.mu.Unlock()
		release()
	}
}

// Withhold keeps changes from all watches that are open, as a server does that
// has fallen behind. Those opened later hear of them.
func (s *Server) Withhold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld = len(s.requests)
}

// Requests returns all requests up to now.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Watches returns the number of watches that are open.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	req := Request{
		Path: r.URL.Path, Watch: q.Get("watch") == "true" || q.Get("watch") == "1",
		Initial: q.Get("sendInitialEvents") == "true", Revision: q.Get("resourceVersion"),
		Query: q, Header: r.Header,
	}
	s.mu.Lock()
	s.requests = append(s.requests, req)
	fail, held, epoch, number := s.fail, s.held, s.epoch, len(s.requests)
	path, namespace := cutNamespace(req.Path)
	c := s.kinds[path]
	s.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	var err *apierrors.StatusError
	if fail != nil {
		err = fail(req)
	}
	if err == nil && c == nil {
		err = apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)
	}
	v := &view{server: s, collection: c, request: req, namespace: namespace, epoch: epoch, number: number, out: newWriter(w, r, c)}
	if err == nil {
		if req.Watch {
			err = v.watch(r)
		} else {
			err = v.list()
		}
	}
	if err != nil {
		v.out.status(err)
	}
}

func cutNamespace(path string) (collection, namespace string) {
	before, after, ok := strings.Cut(path, "/namespaces/")
	if !ok {
		return path, ""
	}
	namespace, resource, ok := strings.Cut(after, "/")
	if !ok {
		return path, ""
	}
	return before + "/" + resource, namespace
}

// view is a collection as one request sees it.
type view struct {
	server     *Server
	collection *collection
	request    Request
	namespace  string
	epoch      int
	number     int // of the request
	out        *writer
}

func (v *view) matches(obj *stored) bool {
	if v.namespace != "" && obj.meta.Namespace != v.namespace {
		return false
	}
	selector, err := labels.Parse(first(v.request.Query["labelSelector"]))
	if err != nil || !selector.Matches(labels.Set(obj.meta.Labels)) {
		return false
	}
	for _, want := range strings.Split(first(v.request.Query["fieldSelector"]), ",") {
		field, value, _ := strings.Cut(want, "=")
		if field == "metadata.name" && value != obj.meta.Name || field == "metadata.namespace" && value != obj.meta.Namespace {
			return false
		}
	}
	return true
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// all returns the matching objects in the order of their names.
func (v *view) all() []*stored {
	objs := slices.Collect(maps.Values(v.collection.objects))
	objs = slices.DeleteFunc(objs, func(o *stored) bool { return !v.matches(o) })
	slices.SortFunc(objs, func(a, b *stored) int { return strings.Compare(a.key.String(), b.key.String()) })
	return objs
}

func (v *view) tooLarge() *apierrors.StatusError {
	if rv, _ := strconv.ParseInt(v.request.Revision, 10, 64); rv > v.server.revision {
		err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rv, v.server.revision), 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return err
	}
	return nil
}

func (v *view) list() *apierrors.StatusError {
	s := v.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := v.tooLarge(); err != nil {
		return err
	}
	if v.request.Revision == "" {
		v.collection.cached = s.revision
	}
	objs := v.all()
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.revision, 10)}
	if limit, _ := strconv.Atoi(first(v.request.Query["limit"])); limit > 0 && s.pageSize > 0 {
		skip, _ := strconv.Atoi(first(v.request.Query["continue"]))
		objs = objs[min(skip, len(objs)):]
		if page := min(limit, s.pageSize); len(objs) > page {
			objs = objs[:page]
			meta.Continue = strconv.Itoa(skip + page)
		}
	}
	v.out.list(meta, objs)
	return nil
}

func (v *view) watch(r *http.Request) *apierrors.StatusError {
	s := v.server
	s.mu.Lock()
	watchList, endMarks := s.watchList, s.endMarks
	s.mu.Unlock()
	if v.request.Initial && !watchList {
		err := apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)
		err.ErrStatus.Message = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
		return err
	}
	s.mu.Lock()
	if err := v.tooLarge(); v.request.Initial && err != nil { // else it is silent until then
		s.mu.Unlock()
		return err
	}
	at, _ := strconv.ParseInt(v.request.Revision, 10, 64)
	unversioned := !v.request.Initial && at == 0 // begins with all objects that there are
	if since := v.collection.since; !v.request.Initial && !unversioned && at < since {
		s.mu.Unlock()
		v.out.event("ERROR", nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", at, since)), 0)
		return nil
	}
	var initial []*stored
	if v.request.Initial || unversioned {
		initial, at = v.all(), s.revision
		v.collection.cached = s.revision
	}
	v.out.started = !v.request.Initial
	s.watches++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.watches--
		s.mu.Unlock()
	}()
	v.out.report()
	for _, obj := range initial {
		v.out.event("ADDED", obj, nil, 0)
	}
	if v.request.Initial && endMarks {
		v.out.event("BOOKMARK", nil, nil, at)
	}
	v.follow(r, at)
	return nil
}

// follow passes on changes until the watch ends. A bookmark is of a revision beyond those
// that the watch was told and those that were replayed to it, whether or not it was told
// of them: so does the API server. It comes after all changes up to its revision.
func (v *view) follow(r *http.Request, at int64) {
	s := v.server
	told, replayed, parting := at, false, false
	seconds, _ := strconv.Atoi(first(v.request.Query["timeoutSeconds"]))
	timeout, expired := make(<-chan time.Time), false
	farewell := make(<-chan time.Time) // a bookmark two seconds before the end
	if seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		timeout = timer.C
	}
	if seconds > 2 && first(v.request.Query["allowWatchBookmarks"]) == "true" {
		timer := time.NewTimer(time.Duration(seconds-2) * time.Second)
		defer timer.Stop()
		farewell = timer.C
	}
	for {
		s.mu.Lock()
		ended := s.epoch != v.epoch || s.kinds[pathOfCollection(v.request.Path)] != v.collection
		changed, cached, frozen := s.changed, v.collection.cached, s.frozen || v.number <= s.withheld
		var news []change
		for _, c := range v.collection.log {
			if c.revision > at && !frozen && !ended {
				news = append(news, c)
				at = c.revision
			}
		}
		s.mu.Unlock()
		for _, c := range news {
			if c.object == nil {
				v.out.event(c.typ, nil, nil, c.revision)
			} else if v.matches(c.object) {
				v.out.event(c.typ, c.object, nil, c.revision)
			} else if replayed {
				continue
			}
			told = c.revision
		}
		replayed = true
		if parting && !frozen && cached > told {
			told = cached
			at = max(at, told)
			v.out.event("BOOKMARK", nil, nil, told)
		}
		parting = false
		if (ended || expired) && !frozen {
			return
		}
		select {
		case <-changed:
		case <-farewell:
			parting = true
		case <-timeout:
			expired = true
		case <-r.Context().Done():
			return
		}
	}
}

func pathOfCollection(path string) string {
	path, _ = cutNamespace(path)
	return path
}
