// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spiretest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// OperatorPath is the path of the SPIFFE ID of the operator, which is an administrator.
const OperatorPath = "/cilium-operator"

// ID is a SPIFFE ID.
type ID struct {
	TrustDomain string `json:"trust_domain"`
	Path        string `json:"path"`
}

// Selector is a selector of an entry.
type Selector struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

// Entry is a registration entry.
type Entry struct {
	ID        string     `json:"id,omitempty"`
	SPIFFEID  ID         `json:"spiffe_id"`
	ParentID  ID         `json:"parent_id"`
	Selectors []Selector `json:"selectors,omitempty"`
	Hint      string     `json:"hint,omitempty"`
}

type answerStatus struct {
	Code    codes.Code `json:"code,omitempty"`
	Message string     `json:"message,omitempty"`
}

// Server is a SPIRE server with its agent.
type Server struct {
	Agent *Agent

	t         testing.TB
	authority *authority
	server    *grpc.Server
	port      *port

	mu        sync.Mutex
	entries   map[string]Entry  // by id
	similar   map[string]string // ids by what makes an entry the same as another
	lastID    int
	pages     int // the most entries of a page
	isEndless bool
	admin     bool
	countAll  bool           // whatever the filter is
	calls     map[string]int // by method, answered or not
	requests  map[string][]string
	serials   []string              // of the clients' certificates
	failing   map[string]codes.Code // by method
	refused   map[string]codes.Code // by path of the SPIFFE ID
	hanging   map[string]bool       // by path of the SPIFFE ID
	hangs     map[string]int        // by method, the number of the call
	creating  int                   // calls under way
	most      int                   // of them at once
	costs     *costs                // nil: creations cost nothing
	message   string                // of errors
	age       time.Duration         // of connections that are ended, 0: none are
}

// Start starts a server and its agent in a trust domain.
func Start(t testing.TB, domain string) *Server {
	t.Helper()
	s := Prepare(t, domain)
	s.Agent.Start()
	return s
}

// Prepare starts a server, and not its agent.
func Prepare(t testing.TB, domain string) *Server {
	t.Helper()
	a := newAuthority(t, domain)
	s := &Server{
		Agent: newAgent(t, a), t: t, authority: a, pages: 1000, admin: true, message: "simulated", entries: map[string]Entry{}, similar: map[string]string{}, calls: map[string]int{},
		requests: map[string][]string{}, failing: map[string]codes.Code{}, refused: map[string]codes.Code{}, hanging: map[string]bool{}, hangs: map[string]int{},
	}
	s.Listen("127.0.0.1:0")
	t.Cleanup(s.Stop)
	return s
}

// Listen has the server serve at an address.
func (s *Server) Listen(address string) {
	s.t.Helper()
	var err error
	if s.port, err = openPort(address); err != nil {
		s.t.Fatal(err)
	}
	s.serve()
}

// serve has another server serve at the address.
func (s *Server) serve() {
	source := serverSource{s.authority, spiffeid.RequireFromPath(s.authority.domain, "/spire/server")}
	s.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(tlsconfig.MTLSServerConfig(source, source, tlsconfig.AuthorizeMemberOf(s.authority.domain)))),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: s.age}),
	)
	s.server.RegisterService(&grpc.ServiceDesc{ServiceName: "spire.api.server.entry.v1.Entry", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		method(s, "ListEntries", s.list), method(s, "CountEntries", s.count), method(s, "BatchCreateEntry", s.create), method(s, "BatchDeleteEntry", s.remove),
	}}, s)
	go func(g *grpc.Server, l net.Listener) { _ = g.Serve(l) }(s.server, s.port.listener())
}

// Address is where the server listens.
func (s *Server) Address() string { return s.port.Addr().String() }

// Stop ends the server with all connections.
func (s *Server) Stop() {
	s.server.Stop()
	s.port.end()
}

// EndConnections has the server end all connections in an orderly way (GOAWAY), as it does when it is restarted: calls under way are answered.
func (s *Server) EndConnections() {
	s.t.Helper()
	old := s.server
	s.serve()
	old.GracefulStop()
}

// SetConnectionAge has the server end each connection of an age in an orderly way, as SPIRE servers do after three minutes, from now on.
func (s *Server) SetConnectionAge(age time.Duration) {
	s.t.Helper()
	s.age = age
	s.EndConnections()
}

// Args are the options of an operator for this server and its agent, and those that have it register something.
func (s *Server) Args(more ...string) []string {
	return append([]string{
		"--mesh-auth-spiffe-trust-domain=" + s.authority.domain.Name(), "--mesh-auth-spire-agent-socket=" + s.Agent.Socket,
		"--mesh-auth-spire-server-address=" + s.Address(),
	}, more...)
}

// ReplaceAuthority has the trust domain begin again with another key, which the server and its agent send and accept from
// now on. All connections are cut.
func (s *Server) ReplaceAuthority() {
	s.authority.replace()
	s.Agent.Rotate()
	address := s.Address()
	s.Stop()
	s.Listen(address)
}

// Wipe has the server lose its entries.
func (s *Server) Wipe() {
	s.lock(func() {
		clear(s.entries)
		clear(s.similar)
	})
}

// SetAdmin sets whether the operator is an administrator.
func (s *Server) SetAdmin(admin bool) { s.lock(func() { s.admin = admin }) }

// SetPageSize sets the most entries of a page.
func (s *Server) SetPageSize(n int) { s.lock(func() { s.pages = n }) }

// ListWithoutEnd has the server answer each page of a list with entries of others, and the token of another page.
func (s *Server) ListWithoutEnd() { s.lock(func() { s.isEndless = true }) }

// CountAll has the server count all entries whatever the filter is, as servers before 1.9.6 do.
func (s *Server) CountAll() { s.lock(func() { s.countAll = true }) }

// Fail has all calls of a method fail with a code, until it is OK.
func (s *Server) Fail(method string, code codes.Code) { s.lock(func() { s.failing[method] = code }) }

// Say sets the message of errors that Fail and Refuse cause.
func (s *Server) Say(message string) { s.lock(func() { s.message = message }) }

// Refuse has changes of entries with a path fail with a code each, until it is OK.
func (s *Server) Refuse(path string, code codes.Code) { s.lock(func() { s.refused[path] = code }) }

// Hang has the creation of an entry with a path last until the client gives up, or no longer.
func (s *Server) Hang(path string, hangs bool) { s.lock(func() { s.hanging[path] = hangs }) }

// HangCall has one call of a method, by its number from 1, last until the client gives up.
func (s *Server) HangCall(method string, number int) { s.lock(func() { s.hangs[method] = number }) }

// Put stores an entry, and returns its id.
func (s *Server) Put(e Entry) (id string) {
	s.lock(func() { id = s.store(e).ID })
	return id
}

// PutAs stores an entry under an id of a caller's choice.
func (s *Server) PutAs(id string, e Entry) {
	e.ID = id
	s.lock(func() { s.entries[id], s.similar[similarity(e)] = e, id })
}

// Entries are all entries, by the paths of their SPIFFE IDs.
func (s *Server) Entries() (all map[string]Entry) {
	s.lock(func() {
		all = map[string]Entry{}
		for _, e := range s.entries {
			all[e.SPIFFEID.Path] = e
		}
	})
	return all
}

// Len is the number of entries.
func (s *Server) Len() (n int) {
	s.lock(func() { n = len(s.entries) })
	return n
}

// Calls are the calls by method.
func (s *Server) Calls() (calls map[string]int) {
	s.lock(func() { calls = maps.Clone(s.calls) })
	return calls
}

// Changes are the calls that change something.
func (s *Server) Changes() int {
	calls := s.Calls()
	return calls["BatchCreateEntry"] + calls["BatchDeleteEntry"]
}

// Requests are the requests of a method as JSON.
func (s *Server) Requests(method string) (all []string) {
	s.lock(func() { all = slices.Clone(s.requests[method]) })
	return all
}

// Serials are the serial numbers of the certificates that clients have used, in their order.
func (s *Server) Serials() (all []string) {
	s.lock(func() { all = slices.Clone(s.serials) })
	return all
}

func (s *Server) lock(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// keptRequests is the number of requests that are kept of each method.
const keptRequests = 100

// admit records a call, and returns the error with which it is answered.
func (s *Server) admit(ctx context.Context, method string, request proto.Message, text []byte) error {
	hangs, err := s.record(ctx, method, request, text)
	if hangs {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

func (s *Server) record(ctx context.Context, method string, request proto.Message, text []byte) (hangs bool, err error) {
	if unknown := request.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		return false, status.Errorf(codes.InvalidArgument, "unknown fields: %x", unknown)
	}
	p, _ := peer.FromContext(ctx)
	certificate := p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]
	id, err := x509svid.IDFromCert(certificate)
	if err != nil {
		return false, status.Error(codes.Unauthenticated, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[method]++
	if len(s.requests[method]) < keptRequests {
		s.requests[method] = append(s.requests[method], string(text))
	}
	if serial := certificate.SerialNumber.String(); !slices.Contains(s.serials, serial) {
		s.serials = append(s.serials, serial)
	}
	if !s.admin || id.Path() != OperatorPath {
		return false, status.Errorf(codes.PermissionDenied, "authorization denied for method /spire.api.server.entry.v1.Entry/%s", method)
	}
	if code := s.failing[method]; code != codes.OK {
		return false, status.Error(code, s.message)
	}
	return s.hangs[method] == s.calls[method], nil
}

type filter struct {
	ByParentID  *ID `json:"by_parent_id"`
	BySelectors *struct {
		Selectors []Selector `json:"selectors"`
		Match     int        `json:"match"`
	} `json:"by_selectors"`
}

func (f filter) selects(e Entry) bool {
	return (f.ByParentID == nil || e.ParentID == *f.ByParentID) && (f.BySelectors == nil || slices.Equal(e.Selectors, f.BySelectors.Selectors))
}

type countRequest struct {
	Filter filter `json:"filter"`
}

type countResponse struct {
	Count int `json:"count,omitempty"`
}

// count answers CountEntries.
func (s *Server) count(_ context.Context, in countRequest) (out countResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if s.countAll || in.Filter.selects(e) {
			out.Count++
		}
	}
	return out, nil
}

// mask are the fields of entries that a client asks for, all if it has none.
type mask struct {
	SPIFFEID  bool `json:"spiffe_id"`
	ParentID  bool `json:"parent_id"`
	Selectors bool `json:"selectors"`
	Hint      bool `json:"hint"`
}

func (m *mask) of(e Entry) Entry {
	if m == nil {
		return e
	}
	masked := Entry{ID: e.ID}
	if m.SPIFFEID {
		masked.SPIFFEID = e.SPIFFEID
	}
	if m.ParentID {
		masked.ParentID = e.ParentID
	}
	if m.Selectors {
		masked.Selectors = e.Selectors
	}
	if m.Hint {
		masked.Hint = e.Hint
	}
	return masked
}

type listRequest struct {
	Filter    filter `json:"filter"`
	Mask      *mask  `json:"output_mask"`
	PageSize  int    `json:"page_size"`
	PageToken string `json:"page_token"`
}

type listResponse struct {
	Entries       []Entry `json:"entries,omitempty"`
	NextPageToken string  `json:"next_page_token,omitempty"`
}

// list answers ListEntries: a page token is the id of the last entry before. Selectors match exactly.
func (s *Server) list(_ context.Context, in listRequest) (out listResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.pages
	if in.PageSize > 0 {
		size = min(size, in.PageSize)
	}
	if s.isEndless {
		s.lastID++
		return listResponse{Entries: slices.Repeat([]Entry{{ID: "other"}}, size), NextPageToken: fmt.Sprint(s.lastID)}, nil
	}
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[id]
		if id <= in.PageToken || !in.Filter.selects(e) {
			continue
		}
		if len(out.Entries) == size {
			out.NextPageToken = out.Entries[size-1].ID
			break
		}
		out.Entries = append(out.Entries, in.Mask.of(e))
	}
	return out, nil
}

// store stores an entry under a new id. The caller has the lock.
func (s *Server) store(e Entry) Entry {
	s.lastID++
	e.ID = fmt.Sprintf("entry-%08d", s.lastID)
	s.entries[e.ID], s.similar[similarity(e)] = e, e.ID
	return e
}

type createRequest struct {
	Entries []Entry `json:"entries"`
	Mask    *mask   `json:"output_mask"`
}

type createResult struct {
	Status answerStatus `json:"status"`
	Entry  *Entry       `json:"entry,omitempty"`
}

type createResponse struct {
	Results []createResult `json:"results,omitempty"`
}

// create answers BatchCreateEntry. Entries are created one after the other: those before the client gives up are.
func (s *Server) create(ctx context.Context, in createRequest) (out createResponse, err error) {
	s.beginCreating()
	defer func() { s.lock(func() { s.creating-- }) }()
	for _, e := range in.Entries {
		if err := s.spend(ctx, e.SPIFFEID.Path); err != nil {
			return out, status.FromContextError(err).Err()
		}
		s.lock(func() { out.Results = append(out.Results, s.createOne(e, in.Mask)) })
	}
	return out, nil
}

func (s *Server) beginCreating() {
	s.lock(func() {
		s.creating++
		s.most = max(s.most, s.creating)
	})
	s.costs.begin()
}

// MostCreating is how many calls that create entries were under way at once, at most.
func (s *Server) MostCreating() (n int) {
	s.lock(func() { n = s.most })
	return n
}

// spend returns when an entry can be created, or the client has given up.
func (s *Server) spend(ctx context.Context, path string) error {
	var hangs, alone bool
	s.lock(func() { hangs, alone = s.hanging[path], s.creating == 1 })
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.costs.spend(ctx, s.Len(), alone)
}

// createOne creates an entry. The caller has the lock.
func (s *Server) createOne(e Entry, m *mask) (r createResult) {
	if code := s.refused[e.SPIFFEID.Path]; code != codes.OK {
		r.Status = answerStatus{code, s.message}
		return r
	}
	created, exists := s.entries[s.similar[similarity(e)]]
	if exists {
		r.Status = answerStatus{codes.AlreadyExists, "similar entry already exists"}
	} else {
		created = s.store(e)
	}
	created = m.of(created)
	r.Entry = &created
	return r
}

func similarity(e Entry) string { return fmt.Sprint(e.SPIFFEID, e.ParentID, e.Selectors) }

type deleteRequest struct {
	IDs []string `json:"ids"`
}

type deleteResult struct {
	Status answerStatus `json:"status"`
	ID     string       `json:"id"`
}

type deleteResponse struct {
	Results []deleteResult `json:"results,omitempty"`
}

func (s *Server) remove(_ context.Context, in deleteRequest) (out deleteResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range in.IDs {
		r := deleteResult{ID: id}
		e, exists := s.entries[id]
		switch code := s.refused[e.SPIFFEID.Path]; {
		case !exists:
			r.Status = answerStatus{codes.NotFound, "entry not found"}
		case code != codes.OK:
			r.Status = answerStatus{code, s.message}
		default:
			delete(s.entries, id)
			delete(s.similar, similarity(e))
		}
		out.Results = append(out.Results, r)
	}
	return out, nil
}

// Own is the entry of an identity as the operator creates it.
func (s *Server) Own(number int) Entry {
	domain := s.authority.domain.Name()
	return Entry{
		SPIFFEID: ID{domain, "/identity/" + strconv.Itoa(number)}, ParentID: ID{domain, OperatorPath},
		Selectors: []Selector{{"cilium", "mutual-auth"}},
	}
}

// OfServiceAccount is the entry of a ServiceAccount as the operator creates it.
func (s *Server) OfServiceAccount(namespace, name string) Entry {
	domain := s.authority.domain.Name()
	return Entry{
		SPIFFEID: ID{domain, "/ns/" + namespace + "/sa/" + name}, ParentID: ID{domain, "/ztunnel"},
		Selectors: []Selector{{"k8s", "ns:" + namespace}, {"k8s", "sa:" + name}},
	}
}
