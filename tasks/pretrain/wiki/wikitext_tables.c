/* Tables of tags, entities, templates and sections. */

#include "tasks/pretrain/wiki/wikitext_internal.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* The names of each kind. */
static const char *const tags[] = {
    /* the most frequent one comes first */
    [TAG_SILENT] =
        "ref,includeonly,indicator,languages,references,script,section,seo,style,templatedata,templatestyles",
    [TAG_DROP] = "categorytree,ce,charinsert,chem,dynamicpagelist,gallery,graph,hiero,imagemap,inputbox,listing,"
                 "mapframe,maplink,phonos,pre,rss,score,source,syntaxhighlight,timeline",
    [TAG_RAW] = "nowiki",
    [TAG_MATH] = "math",
    [TAG_TABLE] = "table",
    [TAG_BREAK] = "article,blockquote,caption,center,dd,div,dl,dt,h1,h2,h3,h4,h5,h6,hr,li,ol,p,poem,"
                  "tbody,td,th,thead,tr,ul",
    [TAG_SPACE] = "br,wbr",
    [TAG_INLINE] = "a,abbr,b,bdi,bdo,big,cite,code,data,del,dfn,em,font,i,img,ins,kbd,mark,nobr,"
                   "noinclude,onlyinclude,q,rb,rp,rt,rtc,ruby,s,samp,small,span,strike,strong,sub,sup,"
                   "time,translate,tt,tvar,u,var",
};

/* HTML 4's, and apos, with their scalars. */
static const char entities[] =
    ","
    "AElig=198,Aacute=193,Acirc=194,Agrave=192,Alpha=913,Aring=197,Atilde=195,Auml=196,Beta=914,Ccedil=199,Chi=935,"
    "Dagger=8225,Delta=916,ETH=208,Eacute=201,Ecirc=202,Egrave=200,Epsilon=917,Eta=919,Euml=203,Gamma=915,Iacute=205,"
    "Icirc=206,Igrave=204,Iota=921,Iuml=207,Kappa=922,Lambda=923,Mu=924,Ntilde=209,Nu=925,OElig=338,Oacute=211,"
    "Ocirc=212,Ograve=210,Omega=937,Omicron=927,Oslash=216,Otilde=213,Ouml=214,Phi=934,Pi=928,Prime=8243,Psi=936,"
    "Rho=929,Scaron=352,Sigma=931,THORN=222,Tau=932,Theta=920,Uacute=218,Ucirc=219,Ugrave=217,Upsilon=933,Uuml=220,"
    "Xi=926,Yacute=221,Yuml=376,Zeta=918,aacute=225,acirc=226,acute=180,aelig=230,agrave=224,alefsym=8501,alpha=945,"
    "amp=38,and=8743,ang=8736,apos=39,aring=229,asymp=8776,atilde=227,auml=228,bdquo=8222,beta=946,brvbar=166,"
    "bull=8226,cap=8745,ccedil=231,cedil=184,cent=162,chi=967,circ=710,clubs=9827,cong=8773,copy=169,crarr=8629,"
    "cup=8746,curren=164,dArr=8659,dagger=8224,darr=8595,deg=176,delta=948,diams=9830,divide=247,eacute=233,"
    "ecirc=234,egrave=232,empty=8709,emsp=8195,ensp=8194,epsilon=949,equiv=8801,eta=951,eth=240,euml=235,euro=8364,"
    "exist=8707,fnof=402,forall=8704,frac12=189,frac14=188,frac34=190,frasl=8260,gamma=947,ge=8805,gt=62,hArr=8660,"
    "harr=8596,hearts=9829,hellip=8230,iacute=237,icirc=238,iexcl=161,igrave=236,image=8465,infin=8734,int=8747,"
    "iota=953,iquest=191,isin=8712,iuml=239,kappa=954,lArr=8656,lambda=955,lang=9001,laquo=171,larr=8592,lceil=8968,"
    "ldquo=8220,le=8804,lfloor=8970,lowast=8727,loz=9674,lrm=8206,lsaquo=8249,lsquo=8216,lt=60,macr=175,mdash=8212,"
    "micro=181,middot=183,minus=8722,mu=956,nabla=8711,nbsp=160,ndash=8211,ne=8800,ni=8715,not=172,notin=8713,"
    "nsub=8836,ntilde=241,nu=957,oacute=243,ocirc=244,oelig=339,ograve=242,oline=8254,omega=969,omicron=959,"
    "oplus=8853,or=8744,ordf=170,ordm=186,oslash=248,otilde=245,otimes=8855,ouml=246,para=182,part=8706,permil=8240,"
    "perp=8869,phi=966,pi=960,piv=982,plusmn=177,pound=163,prime=8242,prod=8719,prop=8733,psi=968,quot=34,rArr=8658,"
    "radic=8730,rang=9002,raquo=187,rarr=8594,rceil=8969,rdquo=8221,real=8476,reg=174,rfloor=8971,rho=961,rlm=8207,"
    "rsaquo=8250,rsquo=8217,sbquo=8218,scaron=353,sdot=8901,sect=167,shy=173,sigma=963,sigmaf=962,sim=8764,"
    "spades=9824,sub=8834,sube=8838,sum=8721,sup=8835,sup1=185,sup2=178,sup3=179,supe=8839,szlig=223,tau=964,"
    "there4=8756,theta=952,thetasym=977,thinsp=8201,thorn=254,tilde=732,times=215,trade=8482,uArr=8657,uacute=250,"
    "uarr=8593,ucirc=251,ugrave=249,uml=168,upsih=978,upsilon=965,uuml=252,weierp=8472,xi=958,yacute=253,yen=165,"
    "yuml=255,zeta=950,zwj=8205,zwnj=8204,";

/* Templates that replace words of a sentence, by the form of their words. Lower case. In a form %1 and %2 are the
   unnamed parameters, %3 the third or else the second, %? the first if there is one, %+ all without a blank between, %k
   keys, %r syllables. Numbers and the like: %q a quantity, %v a value, %f a fraction, %d a date, %D the first of two,
   %a "as of", %c "c.", %h a height, %g a gauge, %s sounds, %^ and %_ a raised and a lowered first parameter. */
static const struct {
    const char *form, *names;
} kept[] = {
    {"%1", "abbr,abbrlink,abbrv,angbr,angle bracket,angle brackets,as written,big,blockquote,bold,bquote,center,"
           "code,cquote,em,flag,flagcountry,flagu,formatnum,grapheme,hebrew,ill,interlanguage link,ipa,ipablink,"
           "ipalink,italic,larger,linktext,math,mention,mono,mvar,nastaliq,nihongo,nihongo2,nihongo3,nobold,"
           "nobr,nobreak,noitalic,nowiki,nowrap,nq,num,number,overline,quotation,quote,sc,small,smallcaps,"
           "smaller,strikethrough,strong,tmath,tooltip,underline,unicode,vanchor,var,visible anchor"},
    {"%d", "birth date,birth date and age,birth date and year,death date,end date,end-date,film date,start date,"
           "start date and age,start-date"},
    {"%+", "chem,chem2,chemical formula,gaps,not a typo,notatypo,proper name,sic,simple chemical formula"},
    {"%2", "color,lang,langr,langx,native name,resize,script,wikt-lang"},
    {"–", "dash,en dash,endash,ndash,–"},
    {"—", "em dash,emdash,mdash,mdashb,—"},
    {" – ", "snd,snds,spaced en dash,spaced ndash,spnd"},
    {" ", "nbs,nbsp,spaces,thinsp"},
    {" · ", "dot,middot,·"},
    {"€%?", "eur,euro,€"},
    {"%f", "frac,fraction,sfrac"},
    {"%k", "key,key press,keypress"},
    {"", "nowrap begin,nowrap end,zwj"},
    {"\"'", "\" ',\"'"},
    {"'\"", "' \",'\""},
    {"%c", "c.,circa"},
    {"%q", "convert,cvt"},
    {"£%?", "gbp,£"},
    {"/%1/", "ipaslink,phoneme"},
    {"%g", "railgauge,track gauge"},
    {"%3", "transl,transliteration"},
    {"US$%?", "us$,usd"},
    {"'", "'"},
    {"'s", "'s"},
    {"10^%1", "10^"},
    {"A$%?", "a$"},
    {"%a", "as of"},
    {"C$%?", "c$"},
    {"CN¥%?", "cny"},
    {"%D", "death date and age"},
    {"×10^%1", "e"},
    {"%h", "height"},
    {"HMAS %1", "hmas"},
    {"HMCS %1", "hmcs"},
    {"HMS %1", "hms"},
    {"₹%?", "inr"},
    {"%s", "ipac-en"},
    {"JP¥%?", "jpy"},
    {"MV %1", "mv"},
    {"ʻ", "okina"},
    {"π", "pi"},
    {"£", "pound"},
    {"%r", "respell"},
    {"RMS %1", "rms"},
    {"%1-class %2", "sclass"},
    {"%1 %2", "ship"},
    {"SS %1", "ss"},
    {"%_", "sub"},
    {"%^", "sup"},
    {"USS %1", "uss"},
    {"%v", "val"},
    {"¥%?", "¥"},
};

/* Templates that give no words: notes, requests for sources, anchors, small pictures. Also those whose names end in one
   of silent_endings. */
static const char silent[] =
    "!,-,anchor,anchors,better source,br,by whom,by whom?,clarify,clear,clr,cn,copy edit inline,dead link,"
    "disputed,disputed inline,dubious,dubious inline,efn,efn-la,efn-lg,efn-lr,efn-ua,efn-ur,fact,"
    "failed verification,flag icon,flagdeco,flagicon,flagicon image,fn,full,harvref,how,how?,inflation/fn,"
    "ipa audio,irrelevant,listen,medcn,mvcn,neologism,note,notetag,odn,or,page needed,peacock term,pov,"
    "pov inline,pov statement,r,ref,refn,rp,sfn,sfnm,sfnmp,sfnp,shy,specify,synthesis inline,tone,"
    "unreliable source,vague,verify source,wbr,weasel inline,weasel word,when,when?,where,where?,which,which?,"
    "who,who?,whom,whom?,why,why?,year needed";
static const char *const silent_endings[] = {" inline", " needed", " icon", "-fn", "?"};

/* Sections without prose, to the next heading of the same or a higher level. Lower case. */
static const char dropped_sections[] =
    "bibliografía,bibliographie,bibliography,citations,citations and notes,einzelnachweise,enlaces externos,"
    "explanatory notes,external link,external links,footnotes,further reading,gallery,general references,"
    "image gallery,liens externes,notes,notes and citations,notes and references,notes et références,primary sources,"
    "references,references and notes,referencias,secondary sources,see also,selected bibliography,sources,voir aussi,"
    "véase también,weblinks,works cited";

/* `list` NULL: no names. */
static bool in_list(const char *list, const char *name) { return list && str_list_has(list, ',', name, strlen(name)); }

TagKind wikitext_tag(const char *name)
{
    for (int kind = 0; kind < (int)COUNT(tags); kind++)
        if (in_list(tags[kind], name)) return (TagKind)kind;
    return TAG_NONE;
}

uint32_t wikitext_entity(const char *name)
{
    char wanted[16];
    int n = snprintf(wanted, sizeof wanted, ",%s=", name);
    const char *found = n < (int)sizeof wanted && !strchr(name, '=') ? strstr(entities, wanted) : NULL;
    return found ? (uint32_t)strtoul(found + n, NULL, 10) : 0;
}

const char *wikitext_kept_template(const char *name)
{
    for (size_t i = 0; i < COUNT(kept); i++)
        if (in_list(kept[i].names, name)) return kept[i].form;
    return NULL;
}

bool wikitext_silent_template(const char *name)
{
    if (in_list(silent, name)) return true;
    for (size_t i = 0; i < COUNT(silent_endings); i++)
        if (str_ends_with(name, silent_endings[i]) && strcmp(name, silent_endings[i]) != 0) return true;
    return false;
}

bool wikitext_dropped_section(const char *name) { return in_list(dropped_sections, name); }

bool wikitext_dropped_prefix(const char *namespaces, const char *name, bool written_lower)
{
    static const char *const files = "file,image,media,category,datei,bild,kategorie,fichier,catégorie,archivo,imagen,"
                                     "categoría,immagine,categoria,ficheiro,imagem,bestand,afbeelding,categorie,plik,"
                                     "grafika,kategoria,файл,изображение,категория,ファイル,画像,文件,图像,分类,simple";
    if (in_list(files, name) || in_list(namespaces, name)) return true;
    /* Languages: two or three small letters, optionally with a suffix like "-yue". */
    size_t n = 0;
    while (name[n] >= 'a' && name[n] <= 'z') n++;
    if (!written_lower || n < 2 || n > 3 || in_list("doi,rfc,hdl,wmf,arx,oeis,bug,rev,mw", name)) return false;
    for (const char *p = name + n; *p; p++)
        if (*p != '-' && (*p < 'a' || *p > 'z')) return false;
    return name[n] == '\0' || name[n] == '-';
}
