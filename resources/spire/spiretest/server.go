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

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
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
	listener  net.Listener

	mu       sync.Mutex
	entries  map[string]Entry  // by id
	similar  map[string]string // ids by what makes an entry the same as another
	lastID   int
	pages    int // the most entries of a page
	admin    bool
	countAll bool           // whatever the filter is
	calls    map[string]int // by method, answered or not
	requests map[string][]string
	serials  []string              // of the clients' certificates
	failing  map[string]codes.Code // by method
	refused  map[string]codes.Code // by path of the SPIFFE ID
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
		Agent: newAgent(t, a), t: t, authority: a, pages: 1000, admin: true, entries: map[string]Entry{}, similar: map[string]string{}, calls: map[string]int{},
		requests: map[string][]string{}, failing: map[string]codes.Code{}, refused: map[string]codes.Code{},
	}
	s.Listen("127.0.0.1:0")
	t.Cleanup(s.Stop)
	return s
}

// Listen has the server serve at an address.
func (s *Server) Listen(address string) {
	s.t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	source := serverSource{s.authority, spiffeid.RequireFromPath(s.authority.domain, "/spire/server")}
	s.listener = listener
	s.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(tlsconfig.MTLSServerConfig(source, source, tlsconfig.AuthorizeMemberOf(s.authority.domain)))))
	s.server.RegisterService(&grpc.ServiceDesc{ServiceName: "spire.api.server.entry.v1.Entry", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		method(s, "ListEntries", s.list), method(s, "CountEntries", s.count), method(s, "BatchCreateEntry", s.create), method(s, "BatchDeleteEntry", s.remove),
	}}, s)
	go func(g *grpc.Server) { _ = g.Serve(listener) }(s.server)
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Stop ends the server with all connections.
func (s *Server) Stop() {
	s.server.Stop()
	_ = s.listener.Close() // it may not serve yet
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

// CountAll has the server count all entries whatever the filter is, as servers before 1.9.6 do.
func (s *Server) CountAll() { s.lock(func() { s.countAll = true }) }

// Fail has all calls of a method fail with a code, until it is OK.
func (s *Server) Fail(method string, code codes.Code) { s.lock(func() { s.failing[method] = code }) }

// Refuse has changes of entries with a path fail with a code each, until it is OK.
func (s *Server) Refuse(path string, code codes.Code) { s.lock(func() { s.refused[path] = code }) }

// Put stores an entry, and returns its id.
func (s *Server) Put(e Entry) (id string) {
	s.lock(func() { id = s.store(e).ID })
	return id
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
	if unknown := request.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		return status.Errorf(codes.InvalidArgument, "unknown fields: %x", unknown)
	}
	p, _ := peer.FromContext(ctx)
	certificate := p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]
	id, err := x509svid.IDFromCert(certificate)
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
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
		return status.Errorf(codes.PermissionDenied, "authorization denied for method /spire.api.server.entry.v1.Entry/%s", method)
	}
	if code := s.failing[method]; code != codes.OK {
		return status.Error(code, "simulated")
	}
	return nil
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
func (s *Server) count(in countRequest) (out countResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if s.countAll || in.Filter.selects(e) {
			out.Count++
		}
	}
	return out
}

type listRequest struct {
	Filter    filter `json:"filter"`
	PageSize  int    `json:"page_size"`
	PageToken string `json:"page_token"`
}

type listResponse struct {
	Entries       []Entry `json:"entries,omitempty"`
	NextPageToken string  `json:"next_page_token,omitempty"`
}

// list answers ListEntries: a page token is the id of the last entry before. Selectors match exactly.
func (s *Server) list(in listRequest) (out listResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.pages
	if in.PageSize > 0 {
		size = min(size, in.PageSize)
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
		out.Entries = append(out.Entries, e)
	}
	return out
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
}

type createResult struct {
	Status answerStatus `json:"status"`
	Entry  *Entry       `json:"entry,omitempty"`
}

type createResponse struct {
	Results []createResult `json:"results,omitempty"`
}

func (s *Server) create(in createRequest) (out createResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range in.Entries {
		r := createResult{}
		if code := s.refused[e.SPIFFEID.Path]; code != codes.OK {
			r.Status = answerStatus{code, "simulated"}
		} else if id, exists := s.similar[similarity(e)]; exists {
			known := s.entries[id]
			r.Status, r.Entry = answerStatus{codes.AlreadyExists, "similar entry already exists"}, &known
		} else {
			e = s.store(e)
			r.Entry = &e
		}
		out.Results = append(out.Results, r)
	}
	return out
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

func (s *Server) remove(in deleteRequest) (out deleteResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range in.IDs {
		r := deleteResult{ID: id}
		e, exists := s.entries[id]
		switch code := s.refused[e.SPIFFEID.Path]; {
		case !exists:
			r.Status = answerStatus{codes.NotFound, "entry not found"}
		case code != codes.OK:
			r.Status = answerStatus{code, "simulated"}
		default:
			delete(s.entries, id)
			delete(s.similar, similarity(e))
		}
		out.Results = append(out.Results, r)
	}
	return out
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
